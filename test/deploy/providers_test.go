// SPDX-License-Identifier: Apache-2.0

package deploy

// The providers whose overlays are held against their settings.
import (
	_ "github.com/outrigger/outrigger/providers/alibabacloud"
	_ "github.com/outrigger/outrigger/providers/aws"
	_ "github.com/outrigger/outrigger/providers/azure"
	_ "github.com/outrigger/outrigger/providers/byom"
	_ "github.com/outrigger/outrigger/providers/docker"
	_ "github.com/outrigger/outrigger/providers/gcp"
	_ "github.com/outrigger/outrigger/providers/ibmcloud"
	_ "github.com/outrigger/outrigger/providers/ibmcloudpowervs"
	_ "github.com/outrigger/outrigger/providers/libvirt"
	_ "github.com/outrigger/outrigger/providers/openstack"
	_ "github.com/outrigger/outrigger/providers/qemu"
	_ "github.com/outrigger/outrigger/providers/vsphere"
)
