// SPDX-License-Identifier: Apache-2.0

// Package shim is a containerd runtime v2 shim whose containers run in a VM
// that a remote hypervisor service makes: what the Kata shim does with
// hypervisor "remote", over package podclient.
//
// There is one process per pod. containerd's CRI plugin creates the pause
// container first, which brings the VM up, and the others after it; when the
// pause container ends the VM goes away. The process outlives containerd: it
// serves a socket of its own and holds both ends of what containerd may drop.
//
// Main is the whole program, Service the task service.
package shim
