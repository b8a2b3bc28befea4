// SPDX-License-Identifier: Apache-2.0

// Package docker makes pod VMs that are none: containers of a Docker Engine, for
// machines on which no hypervisor runs. What is in such a "VM" shares the
// kernel of the engine's machine.
//
// A container's name is a hash of the key, and the engine gives a name once:
// whoever makes the instance of a key, there is one. Owner tags are labels.
// User-data is copied into the container before it starts, as the NoCloud seed
// that a hypervisor would attach.
//
// Containers are never privileged: they get the few capabilities that running
// containers inside of them takes, and the engine's masked and read-only system
// paths stay.
package docker
