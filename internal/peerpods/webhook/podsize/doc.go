// SPDX-License-Identifier: Apache-2.0

// Package podsize says how large the VM of a pod must be, writes that into the
// pod's annotations, and takes from the pod what its node must not be asked
// for. See docs/sizing.md.
package podsize
