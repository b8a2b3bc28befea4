// SPDX-License-Identifier: Apache-2.0

// Command capi-release writes the release of an infrastructure provider of
// Cluster API, Outrigger's own or one built on it.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/machines/release"
)

func main() { os.Exit(release.Run(os.Args[1:], os.Stdout, os.Stderr)) }
