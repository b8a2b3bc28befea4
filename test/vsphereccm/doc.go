// SPDX-License-Identifier: Apache-2.0

// Package vsphereccm deploys a cloud controller manager of a bundle that the
// operator was not compiled with: that of examples/ccm-bundle-vsphere. With
// OUTRIGGER_VSPHERE_CCM=1 the real manager of vSphere runs on a real node, at a
// vCenter without machines.
package vsphereccm
