// SPDX-License-Identifier: Apache-2.0

// Command ccm-operator keeps a cluster's cloud controller manager right.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/nodes/operator/command"
)

func main() { os.Exit(command.Main()) }
