// SPDX-License-Identifier: Apache-2.0

//go:build libvirt || !(alibabacloud || aws || azure || byom || docker || gcp || ibmcloud || ibmcloud_powervs || noprovider || openstack || qemu || vsphere)

package builtin

import _ "github.com/outrigger/outrigger/providers/libvirt" // registers provider libvirt
