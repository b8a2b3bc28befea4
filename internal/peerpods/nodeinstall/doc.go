// SPDX-License-Identifier: Apache-2.0

// Package nodeinstall brings the containerd shim to a node: the program, and a
// runtime handler in containerd's configuration. Doing so again changes
// nothing, and it can be undone.
package nodeinstall
