// SPDX-License-Identifier: Apache-2.0

// Command agent-relay carries the agent protocol between the shims of a node
// and the agents in their pod VMs. cloud-api-adaptor starts and steers it.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/peerpods/relay"
)

func main() { os.Exit(relay.Main(os.Args[1:], os.Stdout, os.Stderr)) }
