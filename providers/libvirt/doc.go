// SPDX-License-Identifier: Apache-2.0

// Package libvirt runs pod VMs by way of a libvirt daemon, on this machine or
// on another. It speaks the daemon's protocol itself, so it needs neither cgo
// nor libvirt's library.
//
// An instance is a persistent domain whose UUID is derived from the sandbox
// id. That makes it the same instance for whoever asks, and makes the names of
// everything that belongs to it derivable from its id: its volumes begin with
// outrigger-<uuid>-, its MAC addresses come from the UUID, and by them its DHCP
// reservations are found. The domain is defined before anything else exists
// and undefined after everything else is gone, so a process that is killed in
// between leaves an instance that can be listed and deleted.
//
// Key, owner tags, addresses and phase are in the domain's metadata. Domains
// without that metadata are other people's and are never touched.
package libvirt
