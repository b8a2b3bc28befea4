// SPDX-License-Identifier: Apache-2.0

// Command node-installer brings the containerd shim to a node.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/peerpods/nodeinstall"
)

func main() { os.Exit(nodeinstall.Main()) }
