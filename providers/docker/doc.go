// SPDX-License-Identifier: Apache-2.0

// Package docker makes pod VMs that are none: containers of a Docker Engine, for
// machines on which no hypervisor runs. What is in such a "VM" shares the
// kernel of the engine's machine.
package docker
