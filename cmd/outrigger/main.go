// SPDX-License-Identifier: Apache-2.0

// Command outrigger runs containers in virtual machines of their own. Under the
// name kubectl-outrigger it shows what Outrigger does in a cluster.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/cli"
	"github.com/outrigger/outrigger/internal/kubectl"
)

func main() {
	if kubectl.Called(os.Args[0]) {
		os.Exit(kubectl.Main())
	}
	os.Exit(cli.Main())
}
