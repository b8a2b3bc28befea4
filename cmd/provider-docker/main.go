// SPDX-License-Identifier: Apache-2.0

// Command provider-docker is provider docker as a program of its own: a process
// plugin, or a server on a socket. Install it as a file called docker, since a
// plugin's file has the provider's name.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/serve"
	"github.com/outrigger/outrigger/providers/docker"
)

func main() {
	os.Exit(serve.Run(serve.Options{Name: docker.Name, Version: version.Version, Cloud: provider.Get(docker.Name)}))
}
