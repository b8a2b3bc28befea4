// SPDX-License-Identifier: Apache-2.0

// Package adaptor keeps the pod VMs of one node: it serves the remote
// hypervisor protocol of Kata shims over a provider.
//
// A sandbox is one pod's VM and everything that belongs to it on this node. It
// is made by the named steps in steps.go, in order, and removed by undoing them
// in reverse; both directions are idempotent. What was begun is on disk
// (journal.go) before it is done, so a new process after a crash knows what
// there is: it keeps the sandboxes that are ready and undoes those that were in
// an intermediate state (recover.go).
//
//	CreateVM:  inspect-network, reserve, record-intent
//	StartVM:   claim, create-instance, tunnel, connect, ready
//	StopVM:    all of it in reverse
package adaptor
