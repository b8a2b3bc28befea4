// SPDX-License-Identifier: Apache-2.0

// Command cloud-controller-manager tells a cluster what its Nodes are in the
// cloud of any provider.
package main

import (
	"os"

	_ "github.com/outrigger/outrigger/internal/builtin" // providers
	"github.com/outrigger/outrigger/internal/nodes/ccm/command"
)

func main() { os.Exit(command.Main()) }
