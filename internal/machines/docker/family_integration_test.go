// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/dockerd"
)

// familyData has a machine tell the settings of its kernel besides its name.
const familyData = userData + `- cd /proc/sys/net/ipv6/conf && /bin/busybox cat all/disable_ipv6 default/disable_ipv6 all/forwarding default/forwarding | /bin/busybox tr '\n' ' ' > /var/lib/sysctls
`

// TestIPv6Clusters: clusters of IPv6 alone and of both families at an engine. Endpoint, load
// balancer and machines are reached at addresses of the first family, machines also at those
// of the other, also after the engine has died; nothing is left of them in the end.
func TestIPv6Clusters(t *testing.T) {
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	before := inventory(t, d.Engine)
	b := open(t, testConfig(d.Engine))
	for name, row := range map[string]struct {
		pods, services string
		endpoint6      bool
	}{
		"six":          {"fd00:10:244::/48", "fd00:10:96::/108", true},
		"dual":         {"192.168.0.0/16 fd00:10:244::/48", "10.128.0.0/12 fd00:10:96::/108", false},
		"dual-by-ipv6": {"fd00:10:244::/48 192.168.0.0/16", "fd00:10:96::/108 10.128.0.0/12", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("default", name).withRanges(row.pods, row.services)
			w.ensureCluster(t, b)
			host := netip.MustParseAddr(w.infra.Spec.ControlPlaneEndpoint.Host)
			if host.Is6() != row.endpoint6 {
				t.Errorf("endpoint %s", endpointOf(w))
			}
			addresses := map[string]string{}
			for _, machine := range []string{"cp", "worker"} {
				s := w.add(machine, machine == "cp")
				s.Bootstrap = []byte(familyData)
				state := w.ensure(t, b, s)
				if first := netip.MustParseAddr(state.Addresses[1].Address); first.Is6() != row.endpoint6 || len(state.Addresses) != 5 {
					t.Errorf("%s has addresses %v", machine, state.Addresses)
				}
				for _, a := range state.Addresses[1:] {
					addresses[net.JoinHostPort(a.Address, "6443")] = machine
				}
				container := strings.TrimPrefix(state.ProviderID, providerPrefix)
				if got, err := d.ReadFile(container, "/var/lib/sysctls"); err != nil || got != "0 0 1 1 " {
					t.Errorf("disable_ipv6 and forwarding of all and default: %q, %v", got, err)
				}
			}
			for address, machine := range addresses {
				answers(t, address, machine)
			}
			answers(t, endpointOf(w), "cp")
			if name == "six" {
				restartAll(t, b, w, func() { d.Restart(t) })
				for address, machine := range addresses {
					answers(t, address, machine)
				}
				answers(t, endpointOf(w), "cp")
			}
			for _, s := range w.machines {
				deleteMachine(t, b, s)
			}
			w.deleteCluster(t, b)
		})
	}
	if diff := cmp.Diff(before, inventory(t, d.Engine)); diff != "" {
		t.Errorf("the engine before (-) and after (+):\n%s", diff)
	}
}

// TestKernelWithoutIPv6: an engine whose kernel has no IPv6 says so before anything is made,
// and makes clusters of IPv4 as ever. Here the kernel's files of IPv6 are hidden from it.
func TestKernelWithoutIPv6(t *testing.T) {
	const files = "/proc/sys/net/ipv6"
	if err := unix.Mount("none", files, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(files, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	before := inventory(t, d.Engine)
	b := open(t, testConfig(d.Engine))
	w := newWorld("default", "six").withRanges("fd00:10:244::/48", "fd00:10:96::/108")
	_, err := b.EnsureCluster(t.Context(), w.clusterScope())
	if !reasonIs(err, ReasonIPFamily) || !errors.Is(err, provider.ErrUnimplemented) || !strings.Contains(err.Error(), "name IPv4 ranges") {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff(before, inventory(t, d.Engine)); diff != "" {
		t.Errorf("the engine before (-) and after (+):\n%s", diff)
	}
	four := newWorld("default", "four")
	four.ensureCluster(t, b)
	four.ensure(t, b, four.add("cp", true))
	answers(t, endpointOf(four), "cp")
	four.deleteCluster(t, b)
}
