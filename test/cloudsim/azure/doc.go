// SPDX-License-Identifier: Apache-2.0

// Package azure is a simulated Azure: the Microsoft Entra token endpoint, and
// the resource manager with virtual machines, disks, snapshots, network interfaces, public
// addresses, images, VM sizes, quotas and permissions of one subscription.
//
// It takes only what Azure would take: paths and verbs from a table, each with
// its api-version; bodies that have no property which the models of Microsoft's
// SDK do not have, every value of the right type and, where there is a list of
// values, of the list; required properties there and read-only ones not; and
// then the rules that no model tells, each with its source beside it. Single
// reads are answered by Microsoft's generated fakes. Long-running operations are
// our own: the fakes' speak a protocol of their own.
//
// A VM is made in steps, some milliseconds each: accepted; interfaces, addresses
// and disk made; a machine found; running; reported ready. Each of the steps
// can fail by the script of its cloudsim.World, under the names
//
//   - vm:allocate: no machine is found; the VM stays, in state Failed
//   - vm:delete: a deletion that was accepted fails, and the VM stays
//   - vm:cascade: the VM goes and its parts stay
//   - vm:disks: disks are neither attached nor detached, and those to be detached stay so
//   - disk:make: a disk or snapshot is not made, and stays, in state Failed
//
// Other names are the permissions that a call needs, such as
// Microsoft.Compute/virtualMachines/write, and token for the token endpoint.
//
// What is not verified against the real cloud: the HTTP status that goes with an
// error code, when exactly an interface shows, what tags an OS disk has, and the
// names of interfaces (here they get a suffix, so that nobody relies on them).
package azure
