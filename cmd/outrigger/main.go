// SPDX-License-Identifier: Apache-2.0

// Command outrigger runs containers in virtual machines of their own.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/cli"
)

func main() { os.Exit(cli.Main()) }
