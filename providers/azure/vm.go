// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"

	"github.com/outrigger/outrigger/provider"
)

// getVM returns the VM with its state, or nil when there is none.
func (p *Provider) getVM(ctx context.Context, r ref) (*armcompute.VirtualMachine, error) {
	answer, err := p.cloud.vms.Get(ctx, r.group, r.name, &armcompute.VirtualMachinesClientGetOptions{Expand: to.Ptr(armcompute.InstanceViewTypesInstanceView)})
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &answer.VirtualMachine, nil
}

// Provisioning states of a VM ("States and billing status of Azure Virtual
// Machines", learn.microsoft.com).
const (
	provisioningCreating  = "Creating"
	provisioningUpdating  = "Updating"
	provisioningSucceeded = "Succeeded"
	provisioningFailed    = "Failed"
	provisioningDeleting  = "Deleting"
)

func provisioning(vm *armcompute.VirtualMachine) string {
	if vm.Properties == nil {
		return ""
	}
	return deref(vm.Properties.ProvisioningState)
}

// status returns the rest of the status code that begins with prefix, and its
// message.
func status(vm *armcompute.VirtualMachine, prefix string) (code, message string) {
	if vm.Properties == nil || vm.Properties.InstanceView == nil {
		return "", ""
	}
	for _, s := range vm.Properties.InstanceView.Statuses {
		if rest, ok := strings.CutPrefix(deref(s.Code), prefix); ok {
			return rest, deref(s.Message)
		}
	}
	return "", ""
}

func power(vm *armcompute.VirtualMachine) string {
	code, _ := status(vm, "PowerState/")
	return code
}

// failed reports whether the VM's creation has failed. A VM whose guest never said
// that it was ready counts as failed too for Azure, but it runs. One that a deletion
// stopped on its way, and that failed itself, may be "starting" for ever.
func failed(vm *armcompute.VirtualMachine) bool {
	return provisioning(vm) == provisioningFailed && !isPlaced(vm)
}

// failureOf returns the error of a VM whose provisioning failed.
func failureOf(vm *armcompute.VirtualMachine) error {
	code, message := status(vm, "ProvisioningState/failed/")
	return answered(0, cmp.Or(code, "Failed"), message)
}

// isPlaced reports whether Azure has found a machine for the VM. The address alone
// does not tell: the interface is made before.
func isPlaced(vm *armcompute.VirtualMachine) bool {
	switch power(vm) {
	case "running", "stopped", "stopping", "deallocated", "deallocating":
		return true
	}
	return provisioning(vm) == provisioningSucceeded || provisioning(vm) == provisioningUpdating
}

// stateOf returns nothing when it is not known: a list does not tell whether a
// VM is on.
func stateOf(vm *armcompute.VirtualMachine) provider.InstanceState {
	switch {
	case provisioning(vm) == provisioningDeleting:
		return provider.StateDeleting
	case power(vm) == "running":
		return provider.StateRunning
	case power(vm) == "starting", provisioning(vm) == provisioningCreating:
		return provider.StatePending
	case power(vm) != "", provisioning(vm) == provisioningFailed:
		return provider.StateStopped
	}
	return ""
}

// describe converts a VM with these tags to the contract's type, without its addresses.
func (p *Provider) describe(r ref, vm *armcompute.VirtualMachine, tags map[string]string) *provider.Instance {
	i := &provider.Instance{ID: p.id(r), Name: cmp.Or(tags[tagName], r.name), Key: tags[provider.TagKey], Tags: tags, State: stateOf(vm), Region: deref(vm.Location), Zone: zoneOf(vm)}
	if vm.Properties != nil {
		i.Created = deref(vm.Properties.TimeCreated)
		if vm.Properties.HardwareProfile != nil {
			i.Type = string(deref(vm.Properties.HardwareProfile.VMSize))
		}
	}
	return i
}

func zoneOf(vm *armcompute.VirtualMachine) string {
	if len(vm.Zones) == 0 {
		return ""
	}
	return deref(vm.Zones[0])
}

// primaryNIC returns the resource id of the interface that nodes reach, or
// nothing while there is none.
func primaryNIC(vm *armcompute.VirtualMachine) string {
	if vm.Properties == nil || vm.Properties.NetworkProfile == nil {
		return ""
	}
	list := vm.Properties.NetworkProfile.NetworkInterfaces
	if len(list) == 0 {
		return ""
	}
	i := slices.IndexFunc(list, func(n *armcompute.NetworkInterfaceReference) bool {
		return n.Properties != nil && deref(n.Properties.Primary)
	})
	return deref(list[max(i, 0)].ID)
}

// addresses returns none while there are none.
func (p *Provider) addresses(ctx context.Context, vm *armcompute.VirtualMachine) ([]netip.Addr, error) {
	id := primaryNIC(vm)
	if id == "" {
		return nil, nil
	}
	options := &armnetwork.InterfacesClientGetOptions{}
	if p.cfg.UsePublicIP {
		options.Expand = to.Ptr("ipConfigurations/publicIPAddress")
	}
	nic, err := p.cloud.nics.Get(ctx, part(id, "resourceGroups"), last(id), options)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return p.addressesOf(endsOf(&nic.Interface), nil), nil
}

// end are the addresses of a configuration of an interface. Where the interface tells only the resource id
// of the public one, public is empty.
type end struct{ private, public, publicID string }

func endsOf(nic *armnetwork.Interface) (list []end) {
	if nic.Properties == nil {
		return nil
	}
	for _, c := range nic.Properties.IPConfigurations {
		if c.Properties == nil {
			continue
		}
		e := end{private: deref(c.Properties.PrivateIPAddress)}
		if ip := c.Properties.PublicIPAddress; ip != nil {
			e.publicID = deref(ip.ID)
			if ip.Properties != nil {
				e.public = deref(ip.Properties.IPAddress)
			}
		}
		list = append(list, e)
	}
	return list
}

// addressesOf returns the public address where that is wanted, else the
// private one. known are public addresses by their lower-case resource ids.
func (p *Provider) addressesOf(ends []end, known map[string]string) []netip.Addr {
	for _, e := range ends {
		text := e.private
		if p.cfg.UsePublicIP {
			text = cmp.Or(e.public, known[strings.ToLower(e.publicID)])
		}
		if addr, err := netip.ParseAddr(text); err == nil {
			return []netip.Addr{addr}
		}
	}
	return nil
}
