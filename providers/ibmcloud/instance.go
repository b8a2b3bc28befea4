// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"net/netip"
	"time"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
)

// states of an instance, by the constants of Instance.Status.
var states = map[string]provider.InstanceState{
	"pending":    provider.StatePending,
	"starting":   provider.StatePending,
	"restarting": provider.StatePending,
	"running":    provider.StateRunning,
	"stopped":    provider.StateStopped,
	"failed":     provider.StateStopped,
	"deleting":   provider.StateDeleting,
}

// instanceOf returns the instance of the contract.
func instanceOf(i *vpcv1.Instance, tags map[string]string) *provider.Instance {
	a := &provider.Instance{
		ID: value(i.ID), Name: value(i.Name), IPs: addresses(i), Key: tags[provider.TagKey], Tags: tags,
		State: states[value(i.Status)],
	}
	if i.CreatedAt != nil {
		a.Created = time.Time(*i.CreatedAt).UTC()
	}
	if i.Zone != nil {
		a.Zone = value(i.Zone.Name)
		a.Region = names.RegionOf(a.Zone)
	}
	if i.Profile != nil {
		a.Type = value(i.Profile.Name)
	}
	return a
}

// addresses returns that of the primary interface, then that of the tunnel's;
// nothing while one of them is not chosen, which the API shows as 0.0.0.0.
func addresses(i *vpcv1.Instance) []netip.Addr {
	if i.PrimaryNetworkInterface == nil {
		return nil
	}
	first, ok := address(*i.PrimaryNetworkInterface)
	if !ok {
		return nil
	}
	list := []netip.Addr{first}
	for _, nic := range i.NetworkInterfaces {
		if value(nic.ID) == value(i.PrimaryNetworkInterface.ID) {
			continue
		}
		other, ok := address(nic)
		if !ok {
			return nil
		}
		list = append(list, other)
	}
	return list
}

func address(nic vpcv1.NetworkInterfaceInstanceContextReference) (netip.Addr, bool) {
	if nic.PrimaryIP == nil {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(value(nic.PrimaryIP.Address))
	return a, err == nil && !a.IsUnspecified()
}

// failureOf returns the reason why an instance has failed; nil if it has not.
func failureOf(i *vpcv1.Instance) error {
	if value(i.Status) != "failed" {
		return nil
	}
	reason := vpcv1.InstanceStatusReason{}
	if len(i.StatusReasons) > 0 {
		reason = i.StatusReasons[0]
	}
	return failed(reason.Code, reason.Message, reasons)
}
