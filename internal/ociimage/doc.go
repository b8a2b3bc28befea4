// SPDX-License-Identifier: Apache-2.0

// Package ociimage packs files of this machine into container images, written
// as OCI layout folders. It needs no daemon, no registry and no privileges, and
// equal files give equal bytes.
package ociimage
