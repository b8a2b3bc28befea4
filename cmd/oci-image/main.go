// SPDX-License-Identifier: Apache-2.0

// Command oci-image packs files of this machine into a container image, written
// as an OCI layout folder, which needs no daemon, no registry and no privileges. It also
// pushes, encrypts and signs images.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/ociimage"
	"github.com/outrigger/outrigger/internal/ociimage/protect"
)

func main() {
	c := &ociimage.Command{Stdout: os.Stdout, Stderr: os.Stderr, More: protect.Commands}
	os.Exit(c.Run(os.Args[1:]))
}
