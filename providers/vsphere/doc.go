// SPDX-License-Identifier: Apache-2.0

// Package vsphere runs pod VMs as clones of a template in a vCenter.
//
// An instance's id is a UUID derived from the sandbox id, and its VM is called
// podvm-<id>. A folder of vCenter has each name once, so the name is what makes
// two creations of one sandbox one VM, whoever asks; everything that belongs
// to the VM is made by the one clone task and goes away with it. Key, owner
// tags and human name are in the VM's extraConfig as one JSON text; a VM
// without it is somebody else's and is never touched.
package vsphere
