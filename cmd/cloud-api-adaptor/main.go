// SPDX-License-Identifier: Apache-2.0

// Command cloud-api-adaptor runs the pods of one node in VMs of a cloud.
package main

import (
	"os"
	"path/filepath"

	_ "github.com/outrigger/outrigger/internal/builtin" // providers
	"github.com/outrigger/outrigger/internal/peerpods/adaptor/command"
	"github.com/outrigger/outrigger/internal/peerpods/relay"
)

func main() {
	// In the image it is also the relay, for DaemonSets that have none of their own, such as upstream's.
	if filepath.Base(os.Args[0]) == relay.Program {
		os.Exit(relay.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	c := &command.Command{Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Hook: failpoint}
	os.Exit(c.Run(os.Args[1:]))
}
