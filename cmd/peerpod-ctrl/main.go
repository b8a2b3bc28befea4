// SPDX-License-Identifier: Apache-2.0

// Command peerpod-ctrl removes the instances of deleted PeerPods, and those
// that lost their PeerPod.
package main

import (
	"os"

	_ "github.com/outrigger/outrigger/internal/builtin" // providers
	"github.com/outrigger/outrigger/internal/peerpods/controller/command"
)

func main() { os.Exit(command.Main()) }
