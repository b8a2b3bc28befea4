// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"strings"
)

// permissions returns what the credentials must be allowed with this
// configuration. Which call needs which is on Google's page of each method
// ("IAM Permissions").
func (p *Provider) permissions() []string {
	list := []string{
		"compute.diskTypes.get",
		"compute.disks.create",
		"compute.disks.delete",
		"compute.disks.list",
		"compute.disks.setLabels",
		"compute.images.get",
		"compute.images.useReadOnly",
		"compute.instances.create",
		"compute.instances.delete",
		"compute.instances.get",
		"compute.instances.getSerialPortOutput",
		"compute.instances.list",
		"compute.instances.setLabels",
		"compute.instances.setMetadata",
		"compute.instances.start",
		"compute.instances.stop",
		"compute.machineTypes.list",
		"compute.networks.get",
		"compute.networks.use",
		"compute.regions.get",
		"compute.subnetworks.get",
		"compute.subnetworks.use",
		"compute.zoneOperations.get",
		"compute.zoneOperations.list",
		"compute.zones.get",
	}
	if p.cfg.UsePublicIP || p.cfg.SecondaryNetwork != "" {
		list = append(list, "compute.subnetworks.useExternalIp")
	}
	if strings.Contains(p.cfg.Image, "/family/") {
		list = append(list, "compute.images.getFromFamily")
	}
	if len(p.cfg.NetworkTags) > 0 {
		list = append(list, "compute.instances.setTags")
	}
	if len(p.cfg.Tags) > 0 {
		list = append(list, "compute.instances.createTagBinding")
	}
	return list
}
