// SPDX-License-Identifier: Apache-2.0

// Command containerd-shim-outrigger-v2 is a shim of containerd whose pods run
// in VMs that cloud-api-adaptor makes.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/peerpods/shim"
)

func main() { os.Exit(shim.Main(os.Args[1:], os.Stdout, os.Stderr)) }
