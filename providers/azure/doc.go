// SPDX-License-Identifier: Apache-2.0

// Package azure is provider azure: an instance is an Azure virtual machine in
// one resource group.
//
// # One call makes everything
//
// The PUT of the VM makes its network interface, public address and disk too,
// and says that each of them is deleted with the VM. So there is nothing to
// clean up after a crash but the VM itself.
//
// # Names
//
// A VM's name is a hash of cluster and sandbox id, and the PUT refuses to
// overwrite (If-None-Match). So the cloud itself sees to it that a sandbox has
// one VM, whoever asks and however often. The name for humans is in a tag.
//
// Names of the VM's parts begin with the VM's name and carry its tags. What
// stays of a VM that is gone is found by them: [Provider.ListInstances] shows
// it as an instance, which [Provider.DeleteInstance] removes.
//
// # A failed VM
//
// A creation that fails late, such as for lack of capacity, leaves a VM in
// state Failed. Who made it deletes it and goes on with the next zone or size;
// others wait for that, and delete it only when nobody does.
package azure
