// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	lv "github.com/digitalocean/go-libvirt"

	"github.com/outrigger/outrigger/provider"
)

// smallNetwork has two addresses to give.
const smallNetwork = `<network><name>default</name><forward mode='nat'/><ip address='10.0.0.1' netmask='255.255.255.0'><dhcp><range start='10.0.0.2' end='10.0.0.3'/>%s</dhcp></ip></network>`

func TestAddressesRunOut(t *testing.T) {
	f := newFakeDaemon()
	f.networkXML = smallNetwork
	p := fakeProvider(t, f)
	var ids []string
	for i := range 2 {
		made, err := fakeCreate(t.Context(), p, fmt.Sprint("key", i))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, made.ID)
	}
	_, err := fakeCreate(t.Context(), p, "one more")
	if !errors.Is(err, provider.ErrCapacity) || !strings.Contains(err.Error(), "default") {
		t.Errorf("no address is left: %v", err)
	}
	if err := p.DeleteInstance(t.Context(), ids[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := fakeCreate(t.Context(), p, "one more"); err != nil {
		t.Errorf("an address is free again: %v", err)
	}
}

// TestLeasedAddressesAreLeftAlone: dnsmasq would not give them to another.
func TestLeasedAddressesAreLeftAlone(t *testing.T) {
	f := newFakeDaemon()
	f.networkXML = smallNetwork
	f.taken = []lease{{"52:54:00:00:00:01", "10.0.0.2"}}
	made, err := fakeCreate(t.Context(), fakeProvider(t, f), "key")
	if err != nil || made.IPs[0] != netip.MustParseAddr("10.0.0.3") {
		t.Errorf("%+v, %v", made, err)
	}
}

// TestAddressTakenMeanwhile: another process reserves the address between
// choice and reservation.
func TestAddressTakenMeanwhile(t *testing.T) {
	f := newFakeDaemon()
	p := fakeProvider(t, f)
	stolen := 0
	f.before = func(_ context.Context, call string) error {
		if call == "updateHost" && stolen < 3 {
			stolen++
			n, err := parseNetwork("default", networkInfo{true, strings.ReplaceAll(f.networkXML, "%s", f.hostElements())})
			if err != nil {
				return err
			}
			// What would be chosen now is taken by somebody else.
			free, err := p.choose(t.Context(), n, macOf(instanceID("key"), 0))
			if err != nil {
				return err
			}
			f.hosts[fmt.Sprint("52:54:00:00:00:0", stolen)] = free.addr.String()
		}
		return nil
	}
	made, err := fakeCreate(t.Context(), p, "key")
	if err != nil || stolen != 3 {
		t.Fatalf("%v after %d thefts", err, stolen)
	}
	for mac, ip := range f.hosts {
		if strings.HasPrefix(mac, "52:54:00:00:00:0") && ip == made.IPs[0].String() {
			t.Errorf("address %s was given twice", ip)
		}
	}
}

func (f *fakeDaemon) hostElements() string {
	var text strings.Builder
	for mac, ip := range f.hosts {
		fmt.Fprintf(&text, "<host mac='%s' ip='%s'/>", mac, ip)
	}
	return text.String()
}

// TestWithoutReservations: the address is what DHCP or the agent tells, and a
// VM without one is an error that leaves nothing.
func TestWithoutReservations(t *testing.T) {
	for name, network := range map[string]string{
		"Bridged": `<network><name>default</name><forward mode='bridge'/><bridge name='br0'/></network>`,
		"Refused": smallNetwork,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeDaemon()
				f.networkXML, f.noReservations = network, true
				p := fakeProvider(t, f)
				_, err := fakeCreate(t.Context(), p, "key")
				if !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "-libvirt-address-wait") {
					t.Errorf("no address: %v", err)
				}
				f.wantNothing(t)
				id := instanceID("key")
				f.addrs[id] = []lv.DomainInterface{{Hwaddr: lv.OptString{macOf(id, 0)}, Addrs: []lv.DomainIPAddr{{Addr: "fe80::1"}, {Addr: "10.9.8.7"}}}}
				made, err := fakeCreate(t.Context(), p, "key")
				if err != nil || len(made.IPs) != 1 || made.IPs[0] != netip.MustParseAddr("10.9.8.7") {
					t.Errorf("%+v, %v", made, err)
				}
			})
		})
	}
}

func TestTunnelNetworkGivesASecondAddress(t *testing.T) {
	f := newFakeDaemon()
	p := fakeProvider(t, f, func(c *Config) { c.TunnelNetwork = "tunnel" })
	made, err := fakeCreate(t.Context(), p, "key")
	if err != nil || len(made.IPs) != 2 || made.IPs[0] == made.IPs[1] {
		t.Fatalf("%+v, %v", made, err)
	}
	if err := p.DeleteInstance(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	f.wantNothing(t)
}

// TestDeletionAfterReconfiguration: an instance is removed from where it was
// made.
func TestDeletionAfterReconfiguration(t *testing.T) {
	f := newFakeDaemon()
	made, err := fakeCreate(t.Context(), fakeProvider(t, f, func(c *Config) { c.TunnelNetwork = "tunnel" }), "key")
	if err != nil {
		t.Fatal(err)
	}
	later := fakeProvider(t, f, func(c *Config) { c.Pool, c.Network = "other", "other" })
	if err := later.DeleteInstance(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	f.wantNothing(t)
}

func TestVerifyTellsEverything(t *testing.T) {
	f := newFakeDaemon()
	f.networkDown = true
	p := fakeProvider(t, f, func(c *Config) {
		c.Volume, c.Memory, c.LaunchSecurity = "nosuch.qcow2", 1<<20, securityS390
	})
	err := p.ConfigVerifier()
	for _, word := range []string{"-vol-name", "-memory", "-launch-security", "-network-name"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v lacks %s", err, word)
		}
	}
	narrow := fakeProvider(t, f, func(c *Config) { c.CPUSet = "0-3,16" })
	if err := narrow.ConfigVerifier(); err == nil || !strings.Contains(err.Error(), "-cpuset") || !strings.Contains(err.Error(), "CPU 16") {
		t.Errorf("there are 16 CPUs: %v", err)
	}
	f.poolDown = true
	if err := p.ConfigVerifier(); err == nil || !strings.Contains(err.Error(), "pool-start") {
		t.Errorf("pool is down: %v", err)
	}
}

func TestImagesOfPods(t *testing.T) {
	f := newFakeDaemon()
	f.addVolume("other.raw", "raw", fakeGiB)
	f.addVolume("old.vmdk", "vmdk", fakeGiB)
	p := fakeProvider(t, f)
	other, err := fakeCreate(t.Context(), p, "victim")
	if err != nil {
		t.Fatal(err)
	}
	for image, class := range map[string]error{
		"other.raw":                           nil,
		"nosuch":                              provider.ErrNotFound,
		"old.vmdk":                            provider.ErrInvalidArgument,
		"../secret":                           provider.ErrInvalidArgument,
		volumesOf(other.ID) + rootVolume:      provider.ErrInvalidArgument,
		volumesOf(other.ID) + seedVolume("x"): provider.ErrInvalidArgument,
	} {
		_, err := p.CreateInstance(t.Context(), "pod", "key "+image, nil, provider.InstanceTypeSpec{Image: image})
		if !errors.Is(err, class) {
			t.Errorf("image %s: %v", image, err)
		}
	}
}
