// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// networkNIC, address and disk are what belongs to VMs. Those maps are by
// lower-case resource id.
type networkNIC struct {
	id, vm, private, public string
	tags                    map[string]string
	goesToo, deleting       bool
}

type address struct {
	id, nic, text string
	tags          map[string]string
	goesToo       bool
	deleting      bool
}

type disk struct {
	id, vm string
	upload *upload
	*stored
	tags     map[string]string
	goesToo  bool
	deleting bool
	foreign  bool
	// unbooked ones are not in the books of the World.
	unbooked bool
}

func partID(group, kind, name string) string {
	return "/subscriptions/" + SubscriptionID + "/resourceGroups/" + group + "/providers/" + kind + "/" + name
}

// makeParts makes what the model of a VM tells.
func (c *Cloud) makeParts(vm *machine) {
	p := vm.model.Properties
	for _, n := range p.NetworkProfile.NetworkInterfaceConfigurations {
		c.makeNIC(vm, n)
	}
	od := p.StorageProfile.OSDisk
	d := &disk{id: partID(ResourceGroup, compute+"disks", value(od.Name)), vm: vm.id, tags: tags(vm.model.Tags), goesToo: value(od.DeleteOption) == armcompute.DiskDeleteOptionTypesDelete}
	c.disks[strings.ToLower(d.id)] = d
	c.World.Add(cloudsim.KindDisk, d.id, d.tags)
	for _, data := range p.StorageProfile.DataDisks {
		if found := c.disks[strings.ToLower(value(data.ManagedDisk.ID))]; found != nil {
			found.vm, found.goesToo = vm.id, value(data.DeleteOption) == armcompute.DiskDeleteOptionTypesDelete
		}
	}
}

func (c *Cloud) makeNIC(vm *machine, n *armcompute.VirtualMachineNetworkInterfaceConfiguration) {
	number := c.number()
	nic := &networkNIC{
		id: partID(ResourceGroup, network+"networkInterfaces", fmt.Sprintf("%s-%08x", value(n.Name), number)), vm: vm.id,
		private: fmt.Sprintf("10.%d.%d.%d", 224+number>>16&15, number>>8&255, number&255), tags: tags(n.Tags),
		goesToo: value(n.Properties.DeleteOption) == armcompute.DeleteOptionsDelete,
	}
	c.nics[strings.ToLower(nic.id)] = nic
	c.World.Add(cloudsim.KindNIC, nic.id, nic.tags)
	// The primary one comes first, whatever the order in the model.
	if value(n.Properties.Primary) {
		vm.nics = append([]string{nic.id}, vm.nics...)
	} else {
		vm.nics = append(vm.nics, nic.id)
	}
	public := n.Properties.IPConfigurations[0].Properties.PublicIPAddressConfiguration
	if public == nil {
		return
	}
	ip := &address{
		id: partID(ResourceGroup, network+"publicIPAddresses", fmt.Sprintf("%s-%08x", value(public.Name), number)), nic: nic.id,
		text: fmt.Sprintf("20.%d.%d.%d", number>>16&255, number>>8&255, number&255), tags: tags(public.Tags),
		goesToo: public.Properties != nil && value(public.Properties.DeleteOption) == armcompute.DeleteOptionsDelete,
	}
	nic.public = ip.id
	c.ips[strings.ToLower(ip.id)] = ip
	c.World.Add(cloudsim.KindAddress, ip.id, ip.tags)
}

// releaseParts is the cascade of a VM that is gone. Where it is broken, what
// should have gone stays, belonging to nobody.
func (c *Cloud) releaseParts(vm *machine, broken bool) {
	for key, nic := range c.nics {
		if nic.vm != vm.id {
			continue
		}
		ip := c.ips[strings.ToLower(nic.public)]
		nic.vm = ""
		if broken || !nic.goesToo {
			continue
		}
		delete(c.nics, key)
		c.World.Remove(cloudsim.KindNIC, nic.id)
		if ip != nil {
			ip.nic = ""
			if ip.goesToo {
				delete(c.ips, strings.ToLower(ip.id))
				c.World.Remove(cloudsim.KindAddress, ip.id)
			}
		}
	}
	for key, d := range c.disks {
		if d.vm != vm.id {
			continue
		}
		d.vm = ""
		if d.goesToo && !broken {
			delete(c.disks, key)
			c.World.Remove(cloudsim.KindDisk, d.id)
		}
	}
}

// AddForeign makes a VM with interface and disk that is somebody else's, and an
// interface, an address and a disk without a VM.
func (c *Cloud) AddForeign(name string, foreign map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := vmID(ResourceGroup, name)
	model := armcompute.VirtualMachine{Location: to.Ptr(Region), Tags: map[string]*string{}, Properties: &armcompute.VirtualMachineProperties{
		NetworkProfile: &armcompute.NetworkProfile{}, HardwareProfile: &armcompute.HardwareProfile{VMSize: to.Ptr(armcompute.VirtualMachineSizeTypes("Standard_D2s_v5"))},
	}}
	for tag, v := range foreign {
		model.Tags[tag] = &v
	}
	vm := &machine{id: id, model: model, provisioning: "Succeeded", power: "running"}
	c.vms[strings.ToLower(name)] = vm
	c.World.AddForeign(cloudsim.KindInstance, id, foreign)
	for _, owner := range []string{id, ""} {
		suffix := fmt.Sprintf("-%08x", c.number())
		nic := &networkNIC{id: partID(ResourceGroup, network+"networkInterfaces", name+suffix), vm: owner, tags: foreign, private: "10.1.1.1"}
		ip := &address{id: partID(ResourceGroup, network+"publicIPAddresses", name+suffix), tags: foreign, text: "20.1.1.1"}
		d := &disk{id: partID(ResourceGroup, compute+"disks", name+suffix), vm: owner, tags: foreign, foreign: true}
		c.nics[strings.ToLower(nic.id)], c.ips[strings.ToLower(ip.id)], c.disks[strings.ToLower(d.id)] = nic, ip, d
		c.World.AddForeign(cloudsim.KindNIC, nic.id, foreign)
		c.World.AddForeign(cloudsim.KindAddress, ip.id, foreign)
		c.World.AddForeign(cloudsim.KindDisk, d.id, foreign)
		if owner != "" {
			vm.nics = []string{nic.id}
		}
	}
}

func pointers(m map[string]string) map[string]*string {
	all := map[string]*string{}
	for name, v := range m {
		all[name] = &v
	}
	return all
}

// nicView shows the public address only to those who ask for it.
func (c *Cloud) nicView(nic *networkNIC, expand bool) *armnetwork.Interface {
	p := &armnetwork.InterfaceIPConfigurationPropertiesFormat{PrivateIPAddress: to.Ptr(nic.private), Primary: to.Ptr(true)}
	if nic.public != "" {
		p.PublicIPAddress = &armnetwork.PublicIPAddress{ID: to.Ptr(nic.public)}
		if ip := c.ips[strings.ToLower(nic.public)]; ip != nil && expand {
			p.PublicIPAddress = ipView(ip)
		}
	}
	shown := &armnetwork.Interface{
		ID: to.Ptr(nic.id), Name: to.Ptr(last(nic.id)), Location: to.Ptr(Region), Tags: pointers(nic.tags),
		Properties: &armnetwork.InterfacePropertiesFormat{
			ProvisioningState: to.Ptr(armnetwork.ProvisioningStateSucceeded),
			IPConfigurations:  []*armnetwork.InterfaceIPConfiguration{{Name: to.Ptr("primary"), Properties: p}},
		},
	}
	if nic.vm != "" {
		shown.Properties.VirtualMachine = &armnetwork.SubResource{ID: to.Ptr(nic.vm)}
	}
	return shown
}

func ipView(ip *address) *armnetwork.PublicIPAddress {
	return &armnetwork.PublicIPAddress{
		ID: to.Ptr(ip.id), Name: to.Ptr(last(ip.id)), Location: to.Ptr(Region), Tags: pointers(ip.tags),
		Properties: &armnetwork.PublicIPAddressPropertiesFormat{IPAddress: to.Ptr(ip.text)},
	}
}

func (c *Cloud) listNICs(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	var items []any
	for _, key := range slices.Sorted(maps.Keys(c.nics)) {
		if nic := c.nics[key]; inGroup(nic.id, k.group) && c.World.Visible(cloudsim.KindNIC, nic.id) {
			items = append(items, c.nicView(nic, false))
		}
	}
	return c.page(k, items)
}

func (c *Cloud) listIPs(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	var items []any
	for _, key := range slices.Sorted(maps.Keys(c.ips)) {
		if ip := c.ips[key]; inGroup(ip.id, k.group) && c.World.Visible(cloudsim.KindAddress, ip.id) {
			items = append(items, ipView(ip))
		}
	}
	return c.page(k, items)
}

// removal is the DELETE of a part.
func (c *Cloud) removal(k *call, kind, id, place string, deleting *bool, remove func()) *failure {
	operation := c.begin(k, place)
	k.w.WriteHeader(http.StatusAccepted)
	if *deleting {
		operation.done()
		return nil
	}
	*deleting = true
	c.World.Deleting(kind, id)
	c.after(1, func() {
		remove()
		c.World.Remove(kind, id)
		operation.done()
	})
	return nil
}

func (c *Cloud) deleteNIC(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := strings.ToLower(partID(k.group, network+"networkInterfaces", k.name()))
	nic := c.nics[key]
	switch {
	case nic == nil:
		k.w.WriteHeader(http.StatusNoContent)
		return nil
	case nic.vm != "":
		return fail(http.StatusBadRequest, "NicInUse", "Network Interface %s is used by existing resource %s.", nic.id, nic.vm)
	}
	return c.removal(k, cloudsim.KindNIC, nic.id, networkOperations, &nic.deleting, func() {
		delete(c.nics, key)
		if ip := c.ips[strings.ToLower(nic.public)]; ip != nil {
			ip.nic = ""
		}
	})
}

func (c *Cloud) deleteIP(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := strings.ToLower(partID(k.group, network+"publicIPAddresses", k.name()))
	ip := c.ips[key]
	switch {
	case ip == nil:
		k.w.WriteHeader(http.StatusNoContent)
		return nil
	case ip.nic != "":
		return fail(http.StatusBadRequest, "PublicIPAddressCannotBeDeleted", "Public IP address %s can not be deleted since it is still allocated to resource %s.", ip.id, ip.nic)
	}
	return c.removal(k, cloudsim.KindAddress, ip.id, networkOperations, &ip.deleting, func() { delete(c.ips, key) })
}

func (c *Cloud) deleteDisk(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := strings.ToLower(partID(k.group, compute+"disks", k.name()))
	d := c.disks[key]
	switch {
	case d == nil:
		k.w.WriteHeader(http.StatusNoContent)
		return nil
	case d.vm != "":
		return fail(http.StatusConflict, "OperationNotAllowed", "Disk %s is attached to VM %s.", d.id, d.vm)
	case d.upload != nil && d.upload.open:
		return fail(http.StatusConflict, "OperationNotAllowed", "There is an active shared access signature outstanding for disk %s. Call EndGetAccess before deleting the disk.", d.id)
	}
	return c.removal(k, cloudsim.KindDisk, d.id, diskOperations, &d.deleting, func() { delete(c.disks, key) })
}
