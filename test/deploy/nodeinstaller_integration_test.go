// SPDX-License-Identifier: Apache-2.0

//go:build integration

package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/deployed"
)

// TestNodeInstaller runs the component node-installer on a node, below a folder
// that stands for the node's: this machine's containerd is none of its business.
// Pods of it come and go; only with the DaemonSet does what it installed.
func TestNodeInstaller(t *testing.T) {
	render := overlay(t, "libvirt", "node-installer")
	c := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	node := cluster.StartNode(t, c, cluster.NodeOptions{
		Labels: map[string]string{deployed.WorkerLabel: ""}, Images: deployed.Images(t, "node-installer"),
	})
	host := func(path string) string { return filepath.Join(node.Dir, "host", path) }
	for _, folder := range []string{"/etc/containerd", "/usr/local/bin", "/run/dbus"} {
		if err := os.MkdirAll(host(folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config := "version = 2\n\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"pause:7\"\n"
	if err := os.WriteFile(host("/etc/containerd/config.toml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	var ours []*unstructured.Unstructured
	for _, o := range parse(t, render) {
		if o.GetName() == "node-installer" {
			ours = append(ours, o)
		}
	}
	text := manifests(t, ours)
	for _, folder := range []string{"/etc/containerd", "/usr/local/bin", "/run/dbus"} {
		text = strings.ReplaceAll(text, `"path":"`+folder+`"`, `"path":"`+host(folder)+`"`)
	}
	text = strings.ReplaceAll(text, `-unit=containerd.service`, `-unit=`) // no systemd is here
	c.Kubectl(t, "create", "namespace", namespace)
	in := func(args ...string) string { return c.Kubectl(t, append([]string{"-n", namespace}, args...)...) }
	c.Apply(t, text)
	in("rollout", "status", "daemonset/node-installer", "--timeout="+wait)
	installed := func() bool {
		now, err := os.ReadFile(host("/etc/containerd/config.toml"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = os.Stat(host("/usr/local/bin/containerd-shim-outrigger-v2"))
		return err == nil && strings.HasPrefix(string(now), config) && strings.Contains(string(now), `runtimes."kata-remote"]`)
	}
	if !installed() {
		t.Error("the DaemonSet is ready and the node has no handler")
	}
	in("rollout", "restart", "daemonset/node-installer")
	in("rollout", "status", "daemonset/node-installer", "--timeout="+wait)
	if !installed() {
		t.Error("a new version of the DaemonSet takes the handler away")
	}
	in("delete", "daemonset/node-installer", "serviceaccount/node-installer", "role/node-installer", "rolebinding/node-installer", "--timeout="+wait)
	patience, err := time.ParseDuration(wait)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		now, err := os.ReadFile(host("/etc/containerd/config.toml"))
		_, shim := os.Stat(host("/usr/local/bin/containerd-shim-outrigger-v2"))
		if err == nil && string(now) == config && os.IsNotExist(shim) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the DaemonSet is removed and on the node are %v and\n%s", shim, now)
		}
	}
}
