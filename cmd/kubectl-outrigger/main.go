// SPDX-License-Identifier: Apache-2.0

// Command kubectl-outrigger shows what Outrigger does in a cluster, as a
// plugin of kubectl.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/cli/kubectl"
)

func main() { os.Exit(kubectl.Main()) }
