// SPDX-License-Identifier: Apache-2.0

package guestinit

import "testing"

// TestGuestIsNoRouter: with forwarding on, a host of one of the VM's networks
// reaches those of the other through it.
func TestGuestIsNoRouter(t *testing.T) {
	if got := sysctls["net/ipv4/ip_forward"]; got != "0" {
		t.Errorf("ip_forward is %q", got)
	}
	for name := range sysctls {
		switch name {
		case "net/ipv6/conf/all/forwarding", "net/ipv4/conf/all/forwarding":
			t.Errorf("%s is set", name)
		}
	}
}
