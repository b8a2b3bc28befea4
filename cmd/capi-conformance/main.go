// SPDX-License-Identifier: Apache-2.0

// Command capi-conformance proves that an infrastructure provider of Cluster
// API keeps the contract, whoever wrote it.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/machines/conformance/command"
)

func main() { os.Exit(command.Main()) }
