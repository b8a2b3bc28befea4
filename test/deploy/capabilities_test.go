// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/providers/alibabacloud"
	"github.com/outrigger/outrigger/providers/aws"
	"github.com/outrigger/outrigger/providers/azure"
	"github.com/outrigger/outrigger/providers/byom"
	"github.com/outrigger/outrigger/providers/docker"
	"github.com/outrigger/outrigger/providers/gcp"
	"github.com/outrigger/outrigger/providers/ibmcloud"
	"github.com/outrigger/outrigger/providers/ibmcloudpowervs"
	"github.com/outrigger/outrigger/providers/libvirt"
	"github.com/outrigger/outrigger/providers/openstack"
	"github.com/outrigger/outrigger/providers/qemu"
	"github.com/outrigger/outrigger/providers/vsphere"
)

// Each provider has the methods of these capabilities, and of no others: a method whose
// signature is a little different would be a capability that nobody sees.
func TestCapabilities(t *testing.T) {
	const list, get, console, power, types = provider.CapabilityList, provider.CapabilityGet, provider.CapabilityConsole,
		provider.CapabilityPower, provider.CapabilityInstanceTypes
	const node, balancers, imports, verify, closes = provider.CapabilityNodeAddress, provider.CapabilityLoadBalancers,
		provider.CapabilityImageImport, provider.CapabilityVerifyContext, provider.CapabilityCloseContext
	const disks, snapshots = provider.CapabilityDisks, provider.CapabilitySnapshots
	for _, row := range []struct {
		cloud provider.Provider
		want  []provider.Capability
	}{
		{(*alibabacloud.Provider)(nil), []provider.Capability{list, get, console, power, types, balancers, disks, snapshots, imports, verify}},
		{(*aws.Provider)(nil), []provider.Capability{list, get, console, power, types, disks, snapshots, imports, verify, limited}},
		{(*azure.Provider)(nil), []provider.Capability{list, get, console, power, types, disks, snapshots, imports, verify, limited}},
		{(*byom.Provider)(nil), []provider.Capability{list, get, verify}},
		{(*docker.Provider)(nil), []provider.Capability{list, get, console, node, balancers, disks, snapshots, verify}},
		{(*gcp.Provider)(nil), []provider.Capability{list, get, console, power, types, disks, snapshots, imports, verify, limited}},
		{(*ibmcloud.Provider)(nil), []provider.Capability{list, get, power, types, disks, snapshots, imports, verify}},
		{(*ibmcloudpowervs.Provider)(nil), []provider.Capability{list, get, power, disks, snapshots, verify}},
		{(*libvirt.Provider)(nil), []provider.Capability{list, get, console, power, node, disks, snapshots, imports, verify, limited}},
		{(*openstack.Provider)(nil), []provider.Capability{list, get, console, power, types, disks, snapshots, imports, verify}},
		{(*qemu.Provider)(nil), []provider.Capability{list, get, console, power, types, node, disks, snapshots}},
		{(*vsphere.Provider)(nil), []provider.Capability{list, get, power, disks, snapshots, imports, verify, closes}},
	} {
		if diff := cmp.Diff(row.want, implemented(row.cloud)); diff != "" {
			t.Errorf("%T (-want +got):\n%s", row.cloud, diff)
		}
	}
}

// limited stands for provider.Limited, which says what of a type cannot be used.
const limited provider.Capability = "Limited"

// implemented looks at the type alone: what a provider has depends on its settings, too.
func implemented(p provider.Provider) (all []provider.Capability) {
	for _, one := range []struct {
		name provider.Capability
		is   bool
	}{
		{provider.CapabilityList, is[provider.Lister](p)}, {provider.CapabilityGet, is[provider.Getter](p)},
		{provider.CapabilityConsole, is[provider.ConsoleReader](p)}, {provider.CapabilityPower, is[provider.PowerController](p)},
		{provider.CapabilityInstanceTypes, is[provider.InstanceTypeLister](p)}, {provider.CapabilityNodeAddress, is[provider.NodeAddresser](p)},
		{provider.CapabilityLoadBalancers, is[provider.LoadBalancerController](p)}, {provider.CapabilityDisks, is[provider.DiskController](p)},
		{provider.CapabilitySnapshots, is[provider.DiskSnapshotter](p)}, {provider.CapabilityImageImport, is[provider.ImageImporter](p)},
		{provider.CapabilityVerifyContext, is[provider.ContextVerifier](p)}, {provider.CapabilityCloseContext, is[provider.ContextCloser](p)},
		{limited, is[provider.Limited](p)},
	} {
		if one.is {
			all = append(all, one.name)
		}
	}
	return all
}

func is[T any](p provider.Provider) bool {
	_, ok := p.(T)
	return ok
}
