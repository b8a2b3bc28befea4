// SPDX-License-Identifier: Apache-2.0

// Package podvm defines the pod VM image: the kernel modules and the fixed
// files in it. The builder is internal/guest/image.
package podvm

import "embed"

// Modules is modules.list: one "STAGE NAME" a line, # starts a comment.
//
//go:embed modules.list
var Modules string

// OVF describes the VM that vSphere makes of the disk: DMTF DSP0243 1.1, with
// VMware's extension for UEFI. Resource types are those of CIM's
// ResourceAllocationSettingData: 3 processor, 4 memory, 6 SCSI controller,
// 10 network adapter, 17 disk. It lacks the disk's file, the file's size and the
// disk's size in bytes, in this order.
//
//go:embed podvm.ovf
var OVF string

// Etc holds the files that the image has under /etc.
//
//go:embed os-release passwd group hosts
var Etc embed.FS
