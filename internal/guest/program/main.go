// SPDX-License-Identifier: Apache-2.0

// Command program is podvm-guest, the one executable that holds all programs of the
// pod VM's image. They share the Go runtime and most packages: one file is a third of
// the size of four, and what one process has paged in (or, without KVM, had
// translated) serves the others.
package main

import (
	"os"
	"path/filepath"

	"github.com/outrigger/outrigger/internal/guest/agent"
	"github.com/outrigger/outrigger/internal/guest/forwarder"
	"github.com/outrigger/outrigger/internal/guest/guestinit"
	"github.com/outrigger/outrigger/internal/guest/metadata"
)

// main runs the program by whose name it was started. The agent starts itself under
// names of its own.
func main() {
	switch filepath.Base(os.Args[0]) {
	case "init":
		guestinit.Main()
	case "process-user-data":
		metadata.Main()
	case "agent-protocol-forwarder":
		forwarder.Main()
	default:
		agent.Main()
	}
}
