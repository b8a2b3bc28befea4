// SPDX-License-Identifier: Apache-2.0

// Package vsphere is a vCenter for tests: vcsim, the simulator of govmomi, with
// a script of faults before it and the books of package cloudsim behind it.
//
// One vcsim serves all tests of a process. Each test has a folder of VMs, an
// HTTPS front, a user and a [cloudsim.World] of its own, so tests neither see
// nor disturb each other. What vcsim leaves out is done here: a VM that is
// powered on tells an address after a while, and none once it is off.
//
// Actions in the script are the methods of the vSphere Web Services API, such
// as CloneVM_Task. The code of a refused call is the name of a fault of that
// API; with the prefix "task:" the call succeeds and the task ends in the
// fault, as most faults of a real vCenter do.
package vsphere
