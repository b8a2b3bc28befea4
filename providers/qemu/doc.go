// SPDX-License-Identifier: Apache-2.0

// Package qemu is a provider that starts VMs on this machine with QEMU alone:
// no libvirt, no daemon of its own. It is what a demo, a laptop and most tests
// use.
//
// # A VM
//
// A VM is a q35 machine. It boots a kernel and an initramfs directly, or by UEFI a
// unified kernel image or a qcow2 disk, from an overlay of its own. It has one interface, a tap on the
// provider's bridge (package localnet), a NoCloud seed disk (serial "cidata"),
// a scratch disk with an empty ext4 (serial and label "scratch") and a serial
// console that goes to a file. On a virtio-scsi controller the disks come and go that
// outlive VMs (provider.DiskController); the guest knows them by serial number. KVM is
// used where a guest really runs on it.
//
// # On disk
//
//	STATE_DIR/instances/ID/instance.json   what it is and how far it got
//	STATE_DIR/instances/ID/...             seed.iso, scratch.img, disk.qcow2,
//	                                       console.log, qemu.log, qmp.sock
//	STATE_DIR/instances/ID/tpm-UUID/       its TPM
//	STATE_DIR/tpm-ca/                      who signs certificates of TPMs
//	STATE_DIR/disks/ID/disk.json           what it is, and which instance has it
//	STATE_DIR/disks/ID/image.raw           what is on it
//	STATE_DIR/snapshots/ID/...             snapshot.json, image.raw
//	STATE_DIR/locks/HASH-OF-KEY.lock       who works on a key
//	STATE_DIR/net/                         address leases, see localnet
//	STATE_DIR/accel.json                   what the KVM probe found out
//
// Everything is readable by its owner only, since the seed holds keys. The
// record is written before anything is made, so that whatever a killed process
// leaves behind has a name, is listed, and can be deleted. With the last
// instance, disk and snapshot everything goes but tpm-ca and accel.json, which exists only on
// machines that passed the checks before the probe.
//
// # Console
//
// QEMU appends to console.log for as long as it lives, with or without us.
// Whenever a process with this provider runs, all but the last 8 MiB of a file
// that has grown beyond 16 MiB are given back to the file system as a hole, so
// its apparent size grows and its use of the disk does not.
package qemu
