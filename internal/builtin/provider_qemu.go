// SPDX-License-Identifier: Apache-2.0

//go:build qemu || !(alibabacloud || aws || azure || byom || docker || gcp || ibmcloud || ibmcloud_powervs || libvirt || noprovider || openstack || vsphere)

package builtin

import _ "github.com/outrigger/outrigger/providers/qemu" // registers provider qemu
