// SPDX-License-Identifier: Apache-2.0

// Command peerpods-webhook sizes the VMs of pods as the pods are created.
package main

import (
	"os"

	"github.com/outrigger/outrigger/internal/peerpods/webhook/command"
)

func main() {
	c := &command.Command{Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	os.Exit(c.Run(os.Args[1:]))
}
