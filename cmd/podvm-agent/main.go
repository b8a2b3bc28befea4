// SPDX-License-Identifier: Apache-2.0

// Command podvm-agent runs a pod's containers in its VM, for whoever speaks
// the Kata agent protocol on its socket.
package main

import "github.com/outrigger/outrigger/internal/guest/agent"

func main() { agent.Main() }
