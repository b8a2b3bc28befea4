// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/internal/guestinfo"
	"github.com/outrigger/outrigger/provider"
)

// namespace is the UUID under which sandbox ids are hashed. It never changes:
// an instance would not be found again.
var namespace = uuid.MustParse("0c1f6f58-7a0e-4a86-9a35-0a2ee1d5a7c4")

// instanceID returns the UUID of a sandbox's VM (RFC 9562, version 5).
func instanceID(key string) string { return uuid.NewSHA1(namespace, []byte(key)).String() }

// vmName returns the name of an instance's VM in its folder.
func vmName(id string) string { return "podvm-" + id }

// recordKey is our entry in a VM's extraConfig. The guest cannot read it.
const (
	recordKey  = "outrigger.instance"
	recordPath = `config.extraConfig["` + recordKey + `"]`
)

// addressPath is where a guest without VMware's tools publishes its addresses.
const addressPath = `config.extraConfig["` + guestinfo.Address + `"]`

// forgotten removes what a guest has published: a clone has another address
// than its template, and a VM that is started may get another.
func forgotten() types.BaseOptionValue {
	return &types.OptionValue{Key: guestinfo.Address, Value: ""}
}

// record is what a VM remembers of its instance.
type record struct {
	Key     string            `json:"key"`
	Name    string            `json:"name"`
	Tags    map[string]string `json:"tags,omitempty"`
	Created time.Time         `json:"created"`
	// Addrs are those that the VM had when it was powered off by us; a VM that
	// is off reports none.
	Addrs []netip.Addr `json:"addresses,omitempty"`
}

func (r record) option() (types.BaseOptionValue, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the VM's record: %w", err)
	}
	return &types.OptionValue{Key: recordKey, Value: string(text)}, nil
}

// vmPaths are the properties of a machine.
var vmPaths = []string{"name", recordPath, "runtime.powerState", "guest.net", "guest.ipAddress", addressPath}

// watchedPaths are where a VM's addresses appear. Changes of a single entry of
// extraConfig are not reported, only those of all.
var watchedPaths = []string{"guest.net", "guest.ipAddress", extraConfigPath}

const extraConfigPath = "config.extraConfig"

// machine is a VM of ours, or one that is just being cloned.
type machine struct {
	ref   types.ManagedObjectReference
	name  string
	power types.VirtualMachinePowerState
	addrs []netip.Addr
	// record is nil while the VM is being cloned, and on a VM of others.
	record *record
}

// machineOf reads a VM's properties.
func machineOf(ref types.ManagedObjectReference, p properties) (*machine, error) {
	m := &machine{ref: ref, addrs: addresses(p)}
	m.name, _ = p["name"].(string)
	m.power, _ = p["runtime.powerState"].(types.VirtualMachinePowerState)
	text, there := p.option(recordPath)
	if !there {
		return m, nil
	}
	m.record = &record{}
	if err := json.Unmarshal([]byte(text), m.record); err != nil {
		return nil, fmt.Errorf("extraConfig %s of VM %s: %w", recordKey, m.name, err)
	}
	return m, nil
}

// option returns the value of an entry of extraConfig.
func (p properties) option(path string) (value string, there bool) {
	var option *types.OptionValue
	switch v := p[path].(type) {
	case types.OptionValue:
		option = &v
	case *types.OptionValue:
		option = v
	}
	if option == nil {
		return "", false
	}
	value, _ = option.Value.(string)
	return value, value != "" // as vCenter takes it
}

// entry returns the value of an entry where all of extraConfig is known.
func (p properties) entry(key string) string {
	all, _ := p[extraConfigPath].(types.ArrayOfOptionValue)
	for _, option := range all.OptionValue {
		if o := option.GetOptionValue(); o.Key == key {
			value, _ := o.Value.(string)
			return value
		}
	}
	return ""
}

func (m *machine) on() bool { return m.power == types.VirtualMachinePowerStatePoweredOn }

func (m *machine) instance() *provider.Instance {
	i := &provider.Instance{ID: m.name[len(vmName("")):], IPs: m.addrs, State: provider.StatePending}
	if r := m.record; r != nil {
		i.Name, i.Key, i.Tags, i.Created = r.Name, r.Key, r.Tags, r.Created
		if !m.on() && len(r.Addrs) > 0 {
			i.State = provider.StateStopped
		}
		if len(m.addrs) == 0 { // it is off, or its guest has not told any since it started
			i.IPs = r.Addrs
		}
	}
	if m.on() {
		i.State = provider.StateRunning
	}
	return i
}

// addresses returns those that VMware's tools in the guest report, in the order
// of the interfaces, or else those that the guest has written down itself; IPv4
// before IPv6, and none that only the link knows.
func addresses(p properties) []netip.Addr {
	var list []netip.Addr
	nics, _ := p["guest.net"].(types.ArrayOfGuestNicInfo)
	for _, nic := range nics.GuestNicInfo {
		if addr, ok := best(nic.IpAddress); ok {
			list = append(list, addr)
		}
	}
	if len(list) == 0 {
		text, _ := p["guest.ipAddress"].(string)
		if addr, ok := best([]string{text}); ok {
			list = append(list, addr)
		}
	}
	if len(list) == 0 {
		text, there := p.option(addressPath)
		if !there {
			text = p.entry(guestinfo.Address)
		}
		if addr, ok := best(strings.Split(text, ",")); ok {
			list = append(list, addr)
		}
	}
	return list
}

func best(texts []string) (addr netip.Addr, ok bool) {
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil, a.IsLoopback(), a.IsLinkLocalUnicast(), a.IsUnspecified(), a.IsMulticast():
		case a.Is4():
			return a, true
		case !ok:
			addr, ok = a, true
		}
	}
	return addr, ok
}
