// SPDX-License-Identifier: Apache-2.0

// Command agent-protocol-forwarder runs in a pod VM: it connects the node,
// over TLS, with the agent, over a unix socket.
package main

import "github.com/outrigger/outrigger/internal/guest/forwarder"

func main() { forwarder.Main() }
