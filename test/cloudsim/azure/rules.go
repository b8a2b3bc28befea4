// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"golang.org/x/crypto/ssh"
)

var (
	// "Naming rules and restrictions for Azure resources", Microsoft.Compute.
	vmNameSyntax = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,62}[A-Za-z0-9_])?$`)
	// A host name is a DNS label (RFC 1123), and Linux allows 64 characters.
	computerSyntax = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)
)

func bad(target, format string, args ...any) *failure {
	f := fail(http.StatusBadRequest, "InvalidParameter", format, args...)
	f.message += " Target: '" + target + "'."
	return f
}

// checkModel is what the service checks beyond the types. The caller holds mu.
func (c *Cloud) checkModel(k *call, m *armcompute.VirtualMachine) *failure {
	if m.Properties == nil || m.Properties.HardwareProfile == nil || m.Properties.StorageProfile == nil || m.Properties.NetworkProfile == nil {
		return bad("properties", "Required parameter is missing (null).")
	}
	for _, check := range []func(*call, *armcompute.VirtualMachine) *failure{
		c.checkPlace, c.checkLinked, c.checkImage, c.checkNetwork, c.checkAccount, c.checkSecurity, c.checkDisks, c.checkTags, c.checkUserData, c.checkSpot, c.checkQuota,
	} {
		if f := check(k, m); f != nil {
			return f
		}
	}
	return nil
}

func (c *Cloud) checkPlace(k *call, m *armcompute.VirtualMachine) *failure {
	name := string(value(m.Properties.HardwareProfile.VMSize))
	size := sizeNamed(name)
	switch {
	case !slices.Contains(groups[:1], groupOf(k)):
		return fail(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", k.group)
	case !vmNameSyntax.MatchString(pathName(k.r)):
		return bad("vmName", "The VM name '%s' is invalid.", pathName(k.r))
	case value(m.Location) != Region:
		return fail(http.StatusBadRequest, "LocationNotAvailableForResourceType", "The provided location '%s' is not available for resource type 'Microsoft.Compute/virtualMachines'.", value(m.Location))
	case size == nil:
		return bad("vmSize", "The value %s provided for the VM size is not valid. The valid sizes in the current region are: ...", name)
	case len(m.Zones) > 1:
		return bad("zones", "A virtual machine has one zone.")
	case size.restricted:
		return fail(http.StatusConflict, "SkuNotAvailable", "The requested VM size for resource '%s' is currently not available in location '%s'.", name, Region)
	case len(m.Zones) == 1 && !slices.Contains(size.zones, value(m.Zones[0])):
		return fail(http.StatusConflict, "SkuNotAvailable", "The requested VM size for resource '%s' is currently not available in location '%s' zones '%s'.", name, Region, value(m.Zones[0]))
	}
	return nil
}

// checkLinked is the permissions for what the PUT makes and joins besides the
// VM ("Azure permissions for Networking": linked access checks).
func (c *Cloud) checkLinked(_ *call, m *armcompute.VirtualMachine) *failure {
	actions := []string{compute + "disks/write", network + "networkInterfaces/write", network + "networkInterfaces/join/action", network + "virtualNetworks/subnets/join/action"}
	for _, n := range m.Properties.NetworkProfile.NetworkInterfaceConfigurations {
		if n.Properties == nil {
			continue
		}
		if n.Properties.NetworkSecurityGroup != nil {
			actions = append(actions, network+"networkSecurityGroups/join/action")
		}
		for _, ip := range n.Properties.IPConfigurations {
			if ip.Properties != nil && ip.Properties.PublicIPAddressConfiguration != nil {
				actions = append(actions, network+"publicIPAddresses/write", network+"publicIPAddresses/join/action")
			}
		}
	}
	if image := m.Properties.StorageProfile.ImageReference; image != nil && image.ID != nil {
		actions = append(actions, imageAction(*image.ID))
	}
	if len(m.Properties.StorageProfile.DataDisks) > 0 {
		actions = append(actions, compute+"disks/read")
	}
	for _, action := range actions {
		if f := c.World.Called(action); f != nil && f.Code != "" {
			return fail(f.Status, f.Code, "%s", f.Message)
		}
		if !c.may(action) {
			return fail(http.StatusForbidden, "LinkedAuthorizationFailed", "The client '%s' has permission to perform action 'Microsoft.Compute/virtualMachines/write'; however, it does not have permission to perform action '%s' on the linked scope.", ClientID, action)
		}
	}
	return nil
}

func imageAction(id string) string {
	switch {
	case strings.Contains(strings.ToLower(id), "/versions/"):
		return compute + "galleries/images/versions/read"
	case strings.Contains(strings.ToLower(id), "/galleries/"):
		return compute + "galleries/images/read"
	}
	return compute + "images/read"
}

// images are those there are.
var images = []string{ImageID, LatestImageID, ManagedImageID, CommunityImageID, SharedImageID, CommunityImageID[:strings.Index(CommunityImageID, "/Versions")]}

func known(list []string, id string) bool {
	return slices.ContainsFunc(list, func(other string) bool { return strings.EqualFold(other, id) })
}

func (c *Cloud) checkImage(_ *call, m *armcompute.VirtualMachine) *failure {
	r := m.Properties.StorageProfile.ImageReference
	if r == nil {
		return bad("imageReference", "Required parameter 'imageReference' is missing (null).")
	}
	var given []string
	for id, shared := range map[*string]string{r.ID: "/subscriptions/", r.CommunityGalleryImageID: "/CommunityGalleries/", r.SharedGalleryImageID: "/SharedGalleries/"} {
		if id == nil {
			continue
		}
		if !strings.HasPrefix(strings.ToLower(*id), strings.ToLower(shared)) {
			return bad("imageReference", "The id '%s' is not of that kind.", *id)
		}
		given = append(given, *id)
	}
	switch {
	case len(given) != 1:
		return bad("imageReference", "Exactly one of id, communityGalleryImageId and sharedGalleryImageId must be given.")
	case !known(images, given[0]) && c.gallery[strings.ToLower(given[0])] == nil:
		return fail(http.StatusNotFound, "GalleryImageNotFound", "The gallery image %s is not available in %s region.", given[0], Region)
	}
	return nil
}

func (c *Cloud) checkNetwork(_ *call, m *armcompute.VirtualMachine) *failure {
	profile := m.Properties.NetworkProfile
	primaries := 0
	for _, n := range profile.NetworkInterfaceConfigurations {
		if n.Properties == nil || len(n.Properties.IPConfigurations) == 0 {
			return bad("networkInterfaceConfigurations", "Required parameter 'ipConfigurations' is missing (null).")
		}
		if value(n.Properties.Primary) {
			primaries++
		}
		if g := n.Properties.NetworkSecurityGroup; g != nil && !known([]string{SecurityGroupID}, value(g.ID)) {
			return fail(http.StatusBadRequest, "InvalidResourceReference", "Resource %s referenced by the virtual machine was not found, or is in another region.", value(g.ID))
		}
		for _, ip := range n.Properties.IPConfigurations {
			if f := checkIPConfiguration(ip); f != nil {
				return f
			}
		}
	}
	switch {
	case len(profile.NetworkInterfaces) > 0 || len(profile.NetworkInterfaceConfigurations) == 0:
		return bad("networkProfile", "This cloud makes VMs with networkInterfaceConfigurations.")
	case profile.NetworkAPIVersion == nil:
		return bad("networkApiVersion", "networkApiVersion is required with networkInterfaceConfigurations.")
	case len(profile.NetworkInterfaceConfigurations) > 1 && primaries != 1:
		return fail(http.StatusBadRequest, "VirtualMachineMustHaveOneNetworkInterfaceAsPrimary", "One network interface must be primary; %d are.", primaries)
	}
	return nil
}

func checkIPConfiguration(ip *armcompute.VirtualMachineNetworkInterfaceIPConfiguration) *failure {
	p := ip.Properties
	if p == nil || p.Subnet == nil || !known([]string{SubnetID}, value(p.Subnet.ID)) {
		return fail(http.StatusBadRequest, "InvalidResourceReference", "The subnet referenced by ipConfiguration '%s' was not found.", value(ip.Name))
	}
	public := p.PublicIPAddressConfiguration
	if public == nil {
		return nil
	}
	standard := public.SKU != nil && value(public.SKU.Name) == armcompute.PublicIPAddressSKUNameStandard
	if standard && (public.Properties == nil || value(public.Properties.PublicIPAllocationMethod) != armcompute.PublicIPAllocationMethodStatic) {
		return fail(http.StatusBadRequest, "StandardSkuPublicIPAddressesMustBeStatic", "Standard sku publicIp %s must have AllocationMethod set to Static.", value(public.Name))
	}
	return nil
}

// reserved are account names that the documentation of osProfile.adminUsername
// disallows.
var reserved = strings.Fields("administrator admin user user1 test user2 test1 user3 admin1 1 123 a actuser adm admin2 aspnet backup console david guest john owner root server sql support support_388945a0 sys test2 test3 user4 user5")

func (c *Cloud) checkAccount(_ *call, m *armcompute.VirtualMachine) *failure {
	o := m.Properties.OSProfile
	if o == nil {
		return bad("osProfile", "Required parameter 'osProfile' is missing (null).")
	}
	switch user := value(o.AdminUsername); {
	case !computerSyntax.MatchString(value(o.ComputerName)):
		return bad("osProfile.computerName", "The host name '%s' is invalid.", value(o.ComputerName))
	case user == "" || slices.Contains(reserved, user):
		return bad("osProfile.adminUsername", "The Admin Username specified is not allowed.")
	}
	l := o.LinuxConfiguration
	if l == nil {
		l = &armcompute.LinuxConfiguration{}
	}
	if l.ProvisionVMAgent != nil && !*l.ProvisionVMAgent && value(o.AllowExtensionOperations) {
		return bad("osProfile.allowExtensionOperations", "It must be false where provisionVMAgent is.")
	}
	if !value(l.DisablePasswordAuthentication) {
		return checkPassword(value(o.AdminPassword))
	}
	return checkKey(l, value(o.AdminUsername))
}

// checkPassword: "What are the password requirements when creating a VM?"
// (learn.microsoft.com, FAQ of Linux VMs).
func checkPassword(password string) *failure {
	kinds := 0
	for _, kind := range []string{"[a-z]", "[A-Z]", "[0-9]", "[^a-zA-Z0-9]"} {
		if regexp.MustCompile(kind).MatchString(password) {
			kinds++
		}
	}
	switch {
	case password == "":
		return bad("linuxConfiguration.disablePasswordAuthentication", "Authentication using either SSH or by user name and password must be enabled in Linux profile.")
	case len(password) < 12 || len(password) > 72 || kinds < 3:
		return bad("adminPassword", "The supplied password must be between 12-72 characters long and must satisfy at least 3 of password complexity requirements.")
	}
	return nil
}

func checkKey(l *armcompute.LinuxConfiguration, user string) *failure {
	if l.SSH == nil || len(l.SSH.PublicKeys) != 1 {
		return bad("linuxConfiguration.ssh.publicKeys", "Authentication using either SSH or by user name and password must be enabled in Linux profile.")
	}
	key := l.SSH.PublicKeys[0]
	if value(key.Path) != "/home/"+user+"/.ssh/authorized_keys" {
		return bad("linuxConfiguration.ssh.publicKeys.path", "Destination path for SSH public keys is currently limited to its default value /home/%s/.ssh/authorized_keys.", user)
	}
	if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(value(key.KeyData))); err != nil {
		return bad("linuxConfiguration.ssh.publicKeys.keyData", "The value of parameter linuxConfiguration.ssh.publicKeys.keyData is invalid.")
	}
	return nil
}

// checkSecurity: "Azure Confidential VM options" and "Trusted launch for Azure
// virtual machines" (learn.microsoft.com).
func (c *Cloud) checkSecurity(_ *call, m *armcompute.VirtualMachine) *failure {
	name := string(value(m.Properties.HardwareProfile.VMSize))
	size := sizeNamed(name)
	kind, secureBoot, tpm := armcompute.SecurityTypes(""), false, false
	if s := m.Properties.SecurityProfile; s != nil {
		kind = value(s.SecurityType)
		if s.UefiSettings != nil {
			secureBoot, tpm = value(s.UefiSettings.SecureBootEnabled), value(s.UefiSettings.VTpmEnabled)
		}
	}
	encryption := armcompute.SecurityEncryptionTypes("")
	if d := m.Properties.StorageProfile.OSDisk; d != nil && d.ManagedDisk != nil && d.ManagedDisk.SecurityProfile != nil {
		encryption = value(d.ManagedDisk.SecurityProfile.SecurityEncryptionType)
	}
	confidential := kind == armcompute.SecurityTypesConfidentialVM
	switch {
	case confidential != (size.confidential != ""):
		return fail(http.StatusBadRequest, "BadRequest", "The VM size '%s' is not supported for creation of VMs and Virtual Machine Scale Set with '%s' security type.", name, kind)
	case kind == armcompute.SecurityTypesTrustedLaunch && size.noTrustedLaunch:
		return fail(http.StatusBadRequest, "BadRequest", "The VM size '%s' does not support trusted launch.", name)
	case confidential && !tpm:
		return bad("uefiSettings.vTpmEnabled", "The value must be true for a confidential VM.")
	case confidential != (encryption != ""):
		return bad("osDisk.managedDisk.securityProfile", "It goes with the security type ConfidentialVM.")
	case encryption == armcompute.SecurityEncryptionTypesDiskWithVMGuestState && !secureBoot:
		return bad("uefiSettings.secureBootEnabled", "The value must be true for DiskWithVMGuestState.")
	case kind == "" && (secureBoot || tpm):
		return bad("uefiSettings", "They need a security type.")
	}
	return nil
}

func (c *Cloud) checkDisks(k *call, m *armcompute.VirtualMachine) *failure {
	s := m.Properties.StorageProfile
	if s.OSDisk == nil || value(s.OSDisk.CreateOption) != armcompute.DiskCreateOptionTypesFromImage {
		return bad("osDisk", "This cloud makes the OS disk from an image.")
	}
	if value(s.OSDisk.Name) == "" { // Azure finds one
		s.OSDisk.Name = to.Ptr(fmt.Sprintf("%s_OsDisk_1_%032x", pathName(k.r), c.number()))
	}
	if c.disks[strings.ToLower(partID(ResourceGroup, compute+"disks", value(s.OSDisk.Name)))] != nil {
		return fail(http.StatusConflict, "ConflictingUserInput", "Disk '%s' already exists.", value(s.OSDisk.Name))
	}
	if size := value(s.OSDisk.DiskSizeGB); size != 0 && (size < imageGiB || size > 4095) {
		return bad("osDisk.diskSizeGB", "The specified disk size %d GB is smaller than the size of the image: %d GB.", size, imageGiB)
	}
	luns := map[int32]bool{}
	for _, d := range s.DataDisks {
		if d.ManagedDisk == nil || value(d.CreateOption) != armcompute.DiskCreateOptionTypesAttach || luns[value(d.Lun)] {
			return bad("dataDisks", "This cloud attaches disks that exist, each at a lun of its own.")
		}
		luns[value(d.Lun)] = true
		found := c.disks[strings.ToLower(value(d.ManagedDisk.ID))]
		switch {
		case found == nil:
			return fail(http.StatusNotFound, "ResourceNotFound", "The disk '%s' was not found.", value(d.ManagedDisk.ID))
		case found.vm != "":
			return fail(http.StatusConflict, "ConflictingUserInput", "Disk '%s' cannot be attached as the disk is already owned by VM '%s'.", found.id, found.vm)
		}
	}
	return nil
}

// imageGiB is how large the image is.
const imageGiB = 4

func (c *Cloud) checkTags(_ *call, m *armcompute.VirtualMachine) *failure {
	sets := []map[string]*string{m.Tags}
	for _, n := range m.Properties.NetworkProfile.NetworkInterfaceConfigurations {
		sets = append(sets, n.Tags)
	}
	for _, set := range sets {
		seen := map[string]bool{}
		for name, v := range set {
			lower := strings.ToLower(name)
			if len(set) > 50 || len(name) > 512 || len(value(v)) > 256 || strings.ContainsAny(name, `<>%&\?/`) || seen[lower] {
				return fail(http.StatusBadRequest, "InvalidTags", "The tag '%s' is not allowed, or there are too many.", name)
			}
			seen[lower] = true
		}
	}
	return nil
}

func (c *Cloud) checkUserData(_ *call, m *armcompute.VirtualMachine) *failure {
	text := value(m.Properties.UserData)
	if _, err := base64.StdEncoding.DecodeString(text); err != nil {
		return bad("userData", "User data must be in Base64 format.")
	}
	if len(text) > 64<<10 {
		return bad("userData", "User data exceeds 64 KB.")
	}
	return nil
}

func (c *Cloud) checkSpot(_ *call, m *armcompute.VirtualMachine) *failure {
	p := m.Properties
	spot := value(p.Priority) == armcompute.VirtualMachinePriorityTypesSpot
	switch {
	case !spot && (p.EvictionPolicy != nil || p.BillingProfile != nil):
		return fail(http.StatusBadRequest, "BadRequest", "Eviction policy and billing profile go with priority Spot.")
	case spot && !sizeNamed(string(value(p.HardwareProfile.VMSize))).spot:
		return fail(http.StatusBadRequest, "BadRequest", "The VM size does not support Azure Spot.")
	}
	return nil
}

func (c *Cloud) checkQuota(_ *call, m *armcompute.VirtualMachine) *failure {
	wanted := sizeNamed(string(value(m.Properties.HardwareProfile.VMSize))).cores
	if used := c.usedCores(); used+wanted > c.options.Cores {
		return fail(http.StatusConflict, "OperationNotAllowed", "Operation could not be completed as it results in exceeding approved Total Regional Cores quota. Current Limit: %d, Current Usage: %d, Additional Required: %d.", c.options.Cores, used, wanted)
	}
	return nil
}

func (c *Cloud) usedCores() int64 {
	var used int64
	for _, vm := range c.vms {
		used += vm.cores
	}
	return used
}
