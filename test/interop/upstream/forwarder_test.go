// SPDX-License-Identifier: Apache-2.0

//go:build integration

package upstream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// TestForwarder has our adaptor drive a guest whose agent-protocol-forwarder is
// theirs, with our agent behind it. It wants more of its machine than our image has
// (iptables, XFRM), so that the guest is namespaces of this one.
func TestForwarder(t *testing.T) {
	theirs := program(t, "OUTRIGGER_TEST_UPSTREAM_FORWARDER", "agent-protocol-forwarder")
	dir := stand.Dir(t)
	cloud := cluster.StartCloud(t, fake.Options{})
	cloud.Forwarder = theirs
	registry := stand.StartRegistry(t)
	// Guests see the node at another address than VMs of the qemu provider do.
	const node = "192.168.99.1"
	image := strings.Replace(registry.WithNettool, stand.Gateway, node, 1)
	stand.Start(t, stand.Daemon{
		Path: stand.Binary(t, "cloud-api-adaptor"),
		Args: []string{cluster.CloudName, "-socket", dir + "/hypervisor.sock", "-pods-dir", dir + "/pods"},
		Env: []string{"PROBE_PORT=0", "PROXY_TIMEOUT=1m", "INSECURE_REGISTRIES=" + node,
			"ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN=true", "CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH=unix://" + cloud.Socket},
		Log: dir + "/adaptor.log", Socket: dir + "/hypervisor.sock",
	})
	lifeOfAPod(t, dir, image)
	eventually(t, func() error {
		if left := cloud.Guests(); len(left) > 0 {
			return fmt.Errorf("guests still run: %v", left)
		}
		return nil
	})
}
