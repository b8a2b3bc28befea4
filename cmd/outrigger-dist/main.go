// SPDX-License-Identifier: Apache-2.0

// Command outrigger-dist makes the folder that is handed to users who have no
// compiler.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/dist"
)

func main() { os.Exit(dist.Run(os.Args[1:], os.Stdout, os.Stderr)) }
