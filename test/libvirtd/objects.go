// SPDX-License-Identifier: Apache-2.0

package libvirtd

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
)

// networkXML: no spanning tree, which would hold up the first packets for two
// seconds.
const networkXML = `<network>
  <name>%s</name>
  <forward mode='%s'/>
  <bridge name='%s' stp='off' delay='0'/>
  <mtu size='1500'/>
  <ip address='%s' netmask='255.255.255.0'>
    <dhcp><range start='%[5]s.100' end='%[5]s.220'/></dhcp>
  </ip>
</network>
`

func bridgeName(n int) string { return fmt.Sprint("podbr", n) }

func (d *Daemon) makeNetwork(t testing.TB, nat bool) {
	t.Helper()
	forward := "open"
	if nat {
		forward = "nat"
	}
	n := 0
	for ; ; n++ {
		if _, err := netlink.LinkByName(bridgeName(n)); err != nil {
			break
		}
	}
	prefix := fmt.Sprintf("192.168.%d", 133+n)
	d.Bridge, d.Gateway = bridgeName(n), prefix+".1"
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	d.house.bridge = d.Bridge
	d.write(t, "net.xml", fmt.Sprintf(networkXML, Network, forward, d.Bridge, d.Gateway, prefix))
	d.Virsh(t, "net-define "+d.Dir+"/net.xml; net-start "+Network)
}

func (d *Daemon) makePool(t testing.TB, image string) {
	t.Helper()
	if image != "" {
		copyFile(t, d.Path("pool/"+Volume), image)
	}
	d.Virsh(t, fmt.Sprintf("pool-define-as %s dir --target %s; pool-start %[1]s", Pool, d.PoolDir))
}

func copyFile(t testing.TB, to, from string) {
	t.Helper()
	source, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(target, source)
	if closed := target.Close(); err == nil {
		err = closed
	}
	if err != nil {
		t.Fatalf("copy %s to %s: %v", from, to, err)
	}
}
