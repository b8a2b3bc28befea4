// SPDX-License-Identifier: Apache-2.0

// Package render writes what a bundle is into files, without a cluster: static
// Pods and the cloud's configuration for the machine that a cluster is installed
// from, or all objects as one text.
package render
