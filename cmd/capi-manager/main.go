// SPDX-License-Identifier: Apache-2.0

// Command capi-manager makes machines for Cluster API.
package main

import (
	"os"

	_ "github.com/outrigger/outrigger/internal/builtin" // providers
	"github.com/outrigger/outrigger/internal/machines/command"
)

func main() { os.Exit(command.Main()) }
