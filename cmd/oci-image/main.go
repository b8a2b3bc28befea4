// SPDX-License-Identifier: Apache-2.0

// Command oci-image packs files of this machine into a container image, written
// as an OCI layout folder. It needs no daemon, no registry and no privileges.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/ociimage"
)

func main() {
	c := &ociimage.Command{Stdout: os.Stdout, Stderr: os.Stderr}
	os.Exit(c.Run(os.Args[1:]))
}
