// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// Platform is a cloud, by the name of its provider.
type Platform string

// Platforms. On an unknown one, requests that only one cloud answers decide.
const (
	AWS       Platform = "aws"
	Azure     Platform = "azure"
	GCP       Platform = "gcp"
	Alibaba   Platform = "alibabacloud"
	OpenStack Platform = "openstack"
	VSphere   Platform = "vsphere"
	Unknown   Platform = "unknown"
)

var platforms = []Platform{AWS, Azure, GCP, Alibaba, OpenStack, VSphere, Unknown}

// Choose returns the platform of that name, or without a name the one that the
// hardware identifies.
func Choose(name string, h Hardware) (Platform, error) {
	switch {
	case name == "":
		return h.Platform(), nil
	case slices.Contains(platforms, Platform(name)):
		return Platform(name), nil
	}
	return "", fmt.Errorf("%q is none of %v", name, platforms)
}

// Hardware is what a VM can report where it runs.
type Hardware struct {
	// DMI fields, as in /sys/class/dmi/id.
	Vendor, Product, Serial, UUID, AssetTag string
	// Hypervisor is the vendor in CPUID leaf 0x40000000.
	Hypervisor string
}

// DMIDir is where the kernel shows the DMI fields.
const DMIDir = "/sys/class/dmi/id"

// ReadHardware reads this machine's; what cannot be read is empty.
func ReadHardware(dmiDir string) Hardware {
	read := func(name string) string {
		data, _ := os.ReadFile(filepath.Join(dmiDir, name))
		return strings.TrimSpace(string(data))
	}
	return Hardware{
		Vendor: read("sys_vendor"), Product: read("product_name"), Serial: read("product_serial"),
		UUID: read("product_uuid"), AssetTag: read("chassis_asset_tag"),
		Hypervisor: cpuid.CPU.HypervisorVendorString,
	}
}

// azureAssetTag is the asset tag of every VM of Azure, and of none that its
// hypervisor runs elsewhere (cloud-init's page of the data source Azure).
const azureAssetTag = "7783-7084-3265-9085-8269-3286-77"

// Platform returns which cloud it is.
func (h Hardware) Platform() Platform {
	switch {
	case h.AssetTag == azureAssetTag:
		return Azure
	case h.Vendor == "Amazon EC2", isEC2Serial(h.Serial, h.UUID):
		return AWS
	case h.Product == "Google Compute Engine", strings.HasPrefix(h.Serial, "GoogleCloud-"):
		return GCP
	case h.Vendor == "Alibaba Cloud", h.Product == "Alibaba Cloud ECS":
		return Alibaba
	case strings.HasPrefix(h.Product, "OpenStack "), strings.HasPrefix(h.AssetTag, "OpenStack "):
		return OpenStack
	case strings.HasPrefix(h.Vendor, "VMware"):
		return VSphere
	case h.Vendor == "" && h.Hypervisor == "Microsoft Hv":
		return Azure // a confidential VM may hide its DMI tables
	}
	return Unknown
}

// isEC2Serial follows Amazon's page "Identify EC2 instances": on Xen the
// serial number is the UUID and begins with ec2.
func isEC2Serial(serial, uuid string) bool {
	serial, uuid = strings.ToLower(serial), strings.ToLower(uuid)
	return strings.HasPrefix(uuid, "ec2") && serial == uuid
}
