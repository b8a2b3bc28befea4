// SPDX-License-Identifier: Apache-2.0

package stand

import (
	"net/netip"
	"testing"

	"github.com/outrigger/outrigger/internal/localnet"
)

// PodMTU is that of pod interfaces in tests: an Ethernet underlay of 1500
// bytes less VXLAN over IPv6 (70).
const PodMTU = 1430

// PodNetns makes a network namespace as a CNI plugin does for a pod, with
// eth0, IPv4 and IPv6, on a bridge that all pods of dir share, and NAT to the
// outside. It returns the namespace's path and the pod's addresses.
func PodNetns(t testing.TB, dir, id string) (string, *localnet.Port) {
	t.Helper()
	network, err := localnet.Open(localnet.Config{
		Bridge:   "orpod0",
		Subnets:  []netip.Prefix{netip.MustParsePrefix("10.127.0.0/24"), netip.MustParsePrefix("fd6f:7574:7270::/64")},
		MTU:      PodMTU,
		StateDir: dir + "/podnet",
	})
	if err != nil {
		t.Fatal(err)
	}
	port, path, err := network.AttachNetns(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Detach(id); err != nil {
			t.Errorf("detach %s: %v", id, err)
		}
	})
	return path, port
}
