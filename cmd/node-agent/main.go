// SPDX-License-Identifier: Apache-2.0

// Command node-agent is the first process of a container that is a machine of a
// Kubernetes cluster: it starts the machine's services and does the bootstrap.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/machines/docker/nodeagent"
)

func main() { os.Exit(nodeagent.Main(os.Args[1:])) }
