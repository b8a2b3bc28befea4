// SPDX-License-Identifier: Apache-2.0

// Package nodes tests how Nodes come to know their instances and go with them,
// from an installed operator to nothing that is left: kubelets, pods, images,
// rights and a libvirt daemon are real.
package nodes
