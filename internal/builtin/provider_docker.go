// SPDX-License-Identifier: Apache-2.0

//go:build docker || !(alibabacloud || aws || azure || byom || gcp || ibmcloud || ibmcloud_powervs || libvirt || noprovider || openstack || qemu || vsphere)

package builtin

import _ "github.com/outrigger/outrigger/providers/docker" // registers provider docker
