// SPDX-License-Identifier: Apache-2.0

// Command cloud-api-adaptor runs the pods of one node in VMs of a cloud.
package main

import (
	"os"

	_ "github.com/outrigger/outrigger/internal/builtin" // providers
	"github.com/outrigger/outrigger/internal/peerpods/adaptor/command"
)

func main() {
	c := &command.Command{Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Hook: failpoint}
	os.Exit(c.Run(os.Args[1:]))
}
