// SPDX-License-Identifier: Apache-2.0

//go:build integration

package libvirtd

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

func TestMain(m *testing.M) { testns.Main(m) }

// domainXML never boots: its disk is empty.
const domainXML = `<domain type='qemu'>
  <name>%[1]s</name><memory unit='MiB'>64</memory>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices>
    <disk type='volume' device='disk'><source pool='%[2]s' volume='%[1]s'/><target dev='vda' bus='virtio'/></disk>
    <interface type='network'><source network='%[3]s'/><model type='virtio'/></interface>
  </devices>
</domain>
`

func addGuest(t *testing.T, d *Daemon, name string) {
	t.Helper()
	d.Virsh(t, "vol-create-as", Pool, name, "1M")
	d.write(t, name+".xml", fmt.Sprintf(domainXML, name, Pool, Network))
	d.Virsh(t, "create", d.Dir+"/"+name+".xml")
}

// TestDaemon: a guest outlives the daemon, is seen as left behind by all signs,
// and nothing of the stand stays when the test ends.
func TestDaemon(t *testing.T) {
	t.Run("Life", func(t *testing.T) {
		d := Start(t, Options{NAT: true})
		if left, err := d.Leftovers(); err != nil || len(left) > 0 {
			t.Fatalf("a new daemon has %q, %v", left, err)
		}
		addGuest(t, d, "guest")
		d.Kill(t)
		if _, err := d.Leftovers(); err == nil {
			t.Error("a killed daemon answers")
		}
		d.Restart(t)
		left, err := d.Leftovers()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"domain guest", "volume guest", "file pool/guest", "file run/qemu/guest.xml", "QEMU process", "interface vnet"} {
			if !slices.ContainsFunc(left, func(s string) bool { return strings.HasPrefix(s, want) }) {
				t.Errorf("leftovers lack %q: %q", want, left)
			}
		}
		// libvirt says so of a domain whose QEMU's end it has seen before its own destroy is over.
		if _, err := d.virsh("destroy", "guest"); err != nil && !strings.Contains(err.Error(), "Domain not found") {
			t.Fatal(err)
		}
		d.Virsh(t, "vol-delete", "--pool", Pool, "guest")
		d.WantNothing(t)
	})
	wantClean(t)
}

func TestAddressesAreSeen(t *testing.T) {
	d := Start(t, Options{})
	d.Virsh(t, "net-update", Network, "add-last", "ip-dhcp-host", "<host mac='52:54:00:00:00:53' ip='"+strings.TrimSuffix(d.Gateway, "1")+"53'/>", "--live")
	if left, err := d.Leftovers(); err != nil || len(left) < 2 {
		t.Errorf("leftovers %q, %v; want the address and its file", left, err)
	}
}

func TestTwoDaemons(t *testing.T) {
	tier.OnlyAll(t) // tests have one each
	t.Run("Both", func(t *testing.T) {
		first, second := Start(t, Options{}), Start(t, Options{PoolSize: 64 << 20})
		addGuest(t, second, "guest")
		first.WantNothing(t)
		if left, err := second.Leftovers(); err != nil || len(left) == 0 {
			t.Errorf("leftovers %q, %v", left, err)
		}
		if info := second.Virsh(t, "pool-info", "--bytes", Pool); !strings.Contains(info, fmt.Sprint(64<<20)) {
			t.Errorf("the pool's size: %s", info)
		}
	})
	wantClean(t)
}

// wantClean looks for what a stand could leave in the test's namespaces.
func wantClean(t *testing.T) {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if len(links) != 1 {
		t.Errorf("interfaces %v, want lo", links)
	}
	if tables := stand.Run(t, "nft", "list", "tables"); tables != "" {
		t.Errorf("firewall tables: %s", tables)
	}
	if _, err := os.Stat("/run/libvirt"); err == nil {
		t.Error("/run/libvirt is left")
	}
}

// remote asks the daemon over a URI by libvirt's own client.
func remote(uri string) (string, error) {
	return output("virsh", "--quiet", "--connect", uri, "net-list", "--name")
}

func TestTLS(t *testing.T) {
	d := Start(t, Options{TLS: true})
	uri := "qemu+tls://" + d.TLS.Address + "/system?pkipath="
	if out, err := remote(uri + d.TLS.Client); err != nil || out != Network {
		t.Errorf("with a certificate: %q, %v", out, err)
	}
	if out, err := remote(uri + d.TLS.Stranger); err == nil {
		t.Errorf("with a stranger's certificate: %q", out)
	}
}

func TestSSH(t *testing.T) {
	t.Run("Life", func(t *testing.T) {
		s := Start(t, Options{NAT: true}).StartSSH(t)
		if out, err := login(s, s.Key, s.KnownHosts); err != nil || out != Network {
			t.Errorf("with the key: %q, %v", out, err)
		}
		if out, err := login(s, s.WrongKey, s.KnownHosts); err == nil {
			t.Errorf("with another key: %q", out)
		}
		if out, err := login(s, s.Key, s.WrongHosts); err == nil {
			t.Errorf("with another server: %q", out)
		}
	})
	wantClean(t)
}

// login asks libvirt's client on the far side, at the daemon's usual path.
func login(s *SSH, key, hosts string) (string, error) {
	host, port, _ := net.SplitHostPort(s.Address)
	return output("ssh", "-F", "none", "-i", key, "-p", port, "-o", "UserKnownHostsFile="+hosts, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes",
		"-o", "LogLevel=ERROR", "root@"+host, "virsh --quiet --connect qemu:///system net-list --name")
}

func TestProxyCuts(t *testing.T) {
	d := Start(t, Options{})
	p := d.Proxy(t)
	if out, err := remote(p.URI); err != nil || out != Network {
		t.Fatalf("through the proxy: %q, %v", out, err)
	}
	all := p.Told()
	for _, n := range []int64{0, 1, all / 2} {
		p.CutAfter(n)
		if out, err := remote(p.URI); err == nil {
			t.Errorf("cut after %d of %d bytes: %q", n, all, out)
		}
		if out, err := remote(p.URI); err != nil || out != Network {
			t.Errorf("after the cut: %q, %v", out, err)
		}
	}
	p.CutAfter(-1)
}
