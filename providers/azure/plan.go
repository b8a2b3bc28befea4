// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/places"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// maxUserData limits encoded user-data, in bytes ("User Data for Azure Virtual Machine",
// learn.microsoft.com: 64 KB).
const maxUserData = 64<<10 - 1

// maxTries limits how many pairs of size and zone one creation tries.
const maxTries = 12

// plan is everything about an instance, decided before anything of it exists.
type plan struct {
	name       string // for humans
	tags       map[string]string
	maker      string
	candidates []places.Place // to try, in this order
	image      image
	userData   string // encoded
	volumes    []string
	multiNIC   bool
	sshKey     string
}

func (p *Provider) plan(ctx context.Context, podName, key string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*plan, error) {
	pl := &plan{name: provider.InstanceName(podName, key), maker: randomSuffix() + randomSuffix(), multiNIC: spec.MultiNic}
	var err error
	if pl.tags, err = p.tagsOf(key, pl.name, spec.Tags); err != nil {
		return nil, err
	}
	if pl.image, err = parseImage(cmp.Or(spec.Image, p.cfg.ImageID)); err != nil {
		return nil, err
	}
	for _, volume := range spec.Volumes {
		if !diskIDs.MatchString(volume.DiskID) {
			return nil, fmt.Errorf("%w: volume %.200q is not a resource id of a managed disk", provider.ErrInvalidArgument, volume.DiskID)
		}
		pl.volumes = append(pl.volumes, volume.DiskID)
	}
	if pl.candidates, err = p.candidates(ctx, spec); err != nil {
		return nil, err
	}
	if pl.sshKey, err = p.publicKey(ctx); err != nil {
		return nil, err
	}
	pl.userData, err = generate(cloudConfig)
	return pl, err
}

var diskIDs = resourceID("Microsoft.Compute/disks")

func generate(cloudConfig cloudinit.CloudConfigGenerator) (string, error) {
	text, err := userdata.Generate(cloudConfig)
	if err != nil {
		return "", err
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(text))
	if len(encoded) > maxUserData {
		return "", fmt.Errorf("%w: user-data has %d bytes, and Azure takes %d", provider.ErrInvalidArgument, len(text), maxUserData/4*3)
	}
	return encoded, nil
}

// candidates returns the sizes that fit, the cheapest first, in each zone.
func (p *Provider) candidates(ctx context.Context, spec provider.InstanceTypeSpec) ([]places.Place, error) {
	zones, err := places.Zones(p.cfg.Zones, spec.Zone)
	if err == nil && spec.Zone != "" && !zoneName.MatchString(spec.Zone) {
		err = fmt.Errorf("%w: %q is not a zone, such as 1", provider.ErrInvalidArgument, spec.Zone)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (-zone, AZURE_ZONE)", err)
	}
	types, err := p.rank(ctx, spec)
	if err != nil {
		return nil, err
	}
	list := places.Of(types, zones, maxTries)
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: none of the VM sizes that fit is in zone %s", provider.ErrInvalidArgument, strings.Join(zones, ", "))
	}
	return list, nil
}

// networkAPI is the API version with which Azure makes the interfaces.
const networkAPI = armcompute.NetworkAPIVersionTwoThousandTwenty1101

// model returns the VM for the API.
func (p *Provider) model(name string, pl *plan, at places.Place) armcompute.VirtualMachine {
	prefix := name + "-" + randomSuffix()
	tags := pointers(pl.tags)
	tags[tagMaker] = to.Ptr(pl.maker)
	vm := armcompute.VirtualMachine{
		Location: to.Ptr(p.cfg.Region),
		Tags:     tags,
		Properties: &armcompute.VirtualMachineProperties{
			HardwareProfile: &armcompute.HardwareProfile{VMSize: to.Ptr(armcompute.VirtualMachineSizeTypes(at.Type.Name))},
			StorageProfile:  p.storage(prefix, pl),
			OSProfile:       p.account(pl),
			NetworkProfile: &armcompute.NetworkProfile{
				NetworkAPIVersion:              to.Ptr(networkAPI),
				NetworkInterfaceConfigurations: p.interfaces(prefix, pl),
			},
			SecurityProfile: p.security(),
		},
	}
	if pl.userData != "" {
		vm.Properties.UserData = to.Ptr(pl.userData)
	}
	if at.Zone != "" {
		vm.Zones = []*string{to.Ptr(at.Zone)}
	}
	if p.cfg.BootDiagnostics {
		vm.Properties.DiagnosticsProfile = &armcompute.DiagnosticsProfile{BootDiagnostics: &armcompute.BootDiagnostics{Enabled: to.Ptr(true)}}
	}
	if p.cfg.Spot {
		vm.Properties.Priority = to.Ptr(armcompute.VirtualMachinePriorityTypesSpot)
		vm.Properties.EvictionPolicy = to.Ptr(armcompute.VirtualMachineEvictionPolicyTypesDelete)
		vm.Properties.BillingProfile = &armcompute.BillingProfile{MaxPrice: to.Ptr(float64(p.cfg.SpotMaxPrice))}
	}
	return vm
}

func (p *Provider) storage(prefix string, pl *plan) *armcompute.StorageProfile {
	disk := &armcompute.OSDisk{
		Name:         to.Ptr(prefix + "-os"),
		CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesFromImage),
		DeleteOption: to.Ptr(armcompute.DiskDeleteOptionTypesDelete),
		Caching:      to.Ptr(armcompute.CachingTypesReadWrite),
		ManagedDisk:  &armcompute.ManagedDiskParameters{StorageAccountType: to.Ptr(armcompute.StorageAccountTypes(p.cfg.DiskType))},
	}
	if p.cfg.RootVolumeSize > 0 {
		disk.DiskSizeGB = to.Ptr(int32(p.cfg.RootVolumeSize))
	}
	if !p.cfg.DisableCVM {
		disk.ManagedDisk.SecurityProfile = &armcompute.VMDiskSecurityProfile{SecurityEncryptionType: to.Ptr(armcompute.SecurityEncryptionTypes(p.cfg.DiskEncryption))}
	}
	if p.cfg.DiskKeySet != "" {
		set := &armcompute.DiskEncryptionSetParameters{ID: to.Ptr(p.cfg.DiskKeySet)}
		if secure := disk.ManagedDisk.SecurityProfile; secure != nil && p.cfg.DiskEncryption == "DiskWithVMGuestState" {
			secure.DiskEncryptionSet = set
		} else {
			disk.ManagedDisk.DiskEncryptionSet = set
		}
	}
	profile := &armcompute.StorageProfile{ImageReference: pl.image.reference(), OSDisk: disk}
	for lun, id := range pl.volumes {
		profile.DataDisks = append(profile.DataDisks, &armcompute.DataDisk{
			Lun: to.Ptr(int32(lun)), CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesAttach),
			DeleteOption: to.Ptr(armcompute.DiskDeleteOptionTypesDetach), ManagedDisk: &armcompute.ManagedDiskParameters{ID: to.Ptr(id)},
		})
	}
	return profile
}

// account returns the OS account, which Azure requires for images that are not
// specialised.
func (p *Provider) account(pl *plan) *armcompute.OSProfile {
	file := "/home/" + p.cfg.SSHUser + "/.ssh/authorized_keys"
	return &armcompute.OSProfile{
		ComputerName:  to.Ptr(pl.name),
		AdminUsername: to.Ptr(p.cfg.SSHUser),
		// Azure requires the same value as for ProvisionVMAgent.
		AllowExtensionOperations: to.Ptr(false),
		LinuxConfiguration: &armcompute.LinuxConfiguration{
			DisablePasswordAuthentication: to.Ptr(true),
			ProvisionVMAgent:              to.Ptr(false),
			SSH:                           &armcompute.SSHConfiguration{PublicKeys: []*armcompute.SSHPublicKey{{Path: to.Ptr(file), KeyData: to.Ptr(pl.sshKey)}}},
		},
	}
}

func (p *Provider) interfaces(prefix string, pl *plan) []*armcompute.VirtualMachineNetworkInterfaceConfiguration {
	list := []*armcompute.VirtualMachineNetworkInterfaceConfiguration{p.nic(prefix, pl, true, p.cfg.UsePublicIP)}
	if pl.multiNIC {
		list = append(list, p.nic(prefix+"-ext", pl, false, true))
	}
	return list
}

func (p *Provider) nic(prefix string, pl *plan, primary, public bool) *armcompute.VirtualMachineNetworkInterfaceConfiguration {
	address := &armcompute.VirtualMachineNetworkInterfaceIPConfigurationProperties{
		Primary:                 to.Ptr(true),
		PrivateIPAddressVersion: to.Ptr(armcompute.IPVersionsIPv4),
		Subnet:                  &armcompute.SubResource{ID: to.Ptr(p.cfg.SubnetID)},
	}
	if public {
		address.PublicIPAddressConfiguration = &armcompute.VirtualMachinePublicIPAddressConfiguration{
			Name: to.Ptr(prefix + "-ip"),
			SKU:  &armcompute.PublicIPAddressSKU{Name: to.Ptr(armcompute.PublicIPAddressSKUNameStandard), Tier: to.Ptr(armcompute.PublicIPAddressSKUTierRegional)},
			Tags: pointers(pl.tags),
			Properties: &armcompute.VirtualMachinePublicIPAddressConfigurationProperties{
				DeleteOption:             to.Ptr(armcompute.DeleteOptionsDelete),
				PublicIPAllocationMethod: to.Ptr(armcompute.PublicIPAllocationMethodStatic),
			},
		}
	}
	nic := &armcompute.VirtualMachineNetworkInterfaceConfiguration{
		Name: to.Ptr(prefix + "-nic"),
		Tags: pointers(pl.tags),
		Properties: &armcompute.VirtualMachineNetworkInterfaceConfigurationProperties{
			Primary:          to.Ptr(primary),
			DeleteOption:     to.Ptr(armcompute.DeleteOptionsDelete),
			IPConfigurations: []*armcompute.VirtualMachineNetworkInterfaceIPConfiguration{{Name: to.Ptr("primary"), Properties: address}},
		},
	}
	if p.cfg.SecurityGroupID != "" {
		nic.Properties.NetworkSecurityGroup = &armcompute.SubResource{ID: to.Ptr(p.cfg.SecurityGroupID)}
	}
	return nic
}

func (p *Provider) security() *armcompute.SecurityProfile {
	kind := armcompute.SecurityTypesConfidentialVM
	if p.cfg.DisableCVM {
		kind = armcompute.SecurityTypesTrustedLaunch
	}
	if p.cfg.DisableCVM && !p.cfg.EnableSecureBoot {
		return nil
	}
	return &armcompute.SecurityProfile{
		SecurityType: to.Ptr(kind),
		UefiSettings: &armcompute.UefiSettings{SecureBootEnabled: to.Ptr(p.cfg.EnableSecureBoot), VTpmEnabled: to.Ptr(true)},
	}
}
