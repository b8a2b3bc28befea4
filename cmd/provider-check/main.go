// SPDX-License-Identifier: Apache-2.0

// Command provider-check proves that a provider keeps the contract of package
// provider, whatever language it is written in.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/cli/providercheck"
)

func main() { os.Exit(providercheck.Main()) }
