// SPDX-License-Identifier: Apache-2.0

// Command outrigger-csi is the CSI driver csi.outrigger.dev over any provider that has disks.
package main

import (
	"os"

	_ "github.com/outrigger/outrigger/internal/builtin" // providers
	"github.com/outrigger/outrigger/internal/volumes/command"
)

func main() { os.Exit(command.Main()) }
