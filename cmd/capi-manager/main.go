// SPDX-License-Identifier: Apache-2.0

// Command capi-manager makes machines for Cluster API.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/capi/command"
)

func main() { os.Exit(command.Main()) }
