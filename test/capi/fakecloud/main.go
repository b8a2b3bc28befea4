// SPDX-License-Identifier: Apache-2.0

// Command fakecloud is the simulated cloud of provider/fake as a process
// plugin. With a folder (FAKE_DIR) it outlives the managers that use it.
package main

import (
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/serve"
)

func main() { serve.Main("fake", fake.NewManager()) }
