// SPDX-License-Identifier: Apache-2.0

// Command outrigger-kbs is a key broker for development and tests: it gives resources to
// VMs that attest.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/keybroker/command"
)

func main() { os.Exit(command.Main()) }
