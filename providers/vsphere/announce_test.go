// SPDX-License-Identifier: Apache-2.0

//go:build !race

package vsphere

import (
	"testing"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/internal/guestinfo"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/vsphere"
)

// TestGuestWithoutTools: its address is the one that it writes down itself.
func TestGuestWithoutTools(t *testing.T) {
	s := sim.Start(t)
	s.WithoutTools()
	p := mustOpen(t, simConfig(s))
	i, err := create(t.Context(), p, "key")
	if err != nil {
		t.Fatal(err)
	}
	if len(i.IPs) != 1 || !i.IPs[0].Is4() {
		t.Fatalf("addresses %v", i.IPs)
	}
	addr := i.IPs[0]
	for what, look := range map[string]func() (*provider.Instance, error){
		"get":          func() (*provider.Instance, error) { return p.GetInstance(t.Context(), i.ID) },
		"create again": func() (*provider.Instance, error) { return create(t.Context(), p, "key") },
		"list": func() (*provider.Instance, error) {
			list, err := p.ListInstances(t.Context(), cloudsim.OwnerTags("key"))
			if err != nil || len(list) != 1 {
				t.Fatalf("%v, %v", list, err)
			}
			return &list[0], nil
		},
	} {
		if got, err := look(); err != nil || len(got.IPs) != 1 || got.IPs[0] != addr {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	if err := p.PowerOff(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := p.GetInstance(t.Context(), i.ID); err != nil || got.State != provider.StateStopped || len(got.IPs) != 1 || got.IPs[0] != addr {
		t.Errorf("off: %+v, %v", got, err)
	}
	if err := p.PowerOn(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
}

// TestAnnouncedAddresses: tools win, nonsense is none, and a clone does not have
// its template's.
func TestAnnouncedAddresses(t *testing.T) {
	said := func(text string) types.OptionValue { return types.OptionValue{Key: guestinfo.Address, Value: text} }
	for text, want := range map[string]string{
		"10.1.2.3": "10.1.2.3", "2001:db8::7,10.1.2.3": "10.1.2.3", "2001:db8::7": "2001:db8::7", "fe80::1,127.0.0.1": "", "": "", "nonsense": "",
	} {
		got := addresses(properties{addressPath: said(text)})
		if len(got) > 1 || len(got) == 1 && got[0].String() != want || len(got) == 0 && want != "" {
			t.Errorf("%q: %v, want %s", text, got, want)
		}
	}
	tools := properties{addressPath: said("10.1.2.3"), "guest.ipAddress": "10.9.9.9"}
	if got := addresses(tools); len(got) != 1 || got[0].String() != "10.9.9.9" {
		t.Errorf("with tools: %v", got)
	}
	spec, err := cloneSpec(&order{id: "i"}, &site{}, &template{}, pool{})
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range spec.Config.ExtraConfig {
		if o := option.GetOptionValue(); o.Key == guestinfo.Address && o.Value == "" {
			return
		}
	}
	t.Errorf("the clone keeps the template's address: %v", spec.Config.ExtraConfig)
}
