// SPDX-License-Identifier: Apache-2.0

// Command podvm-init is PID 1 of the pod VM.
package main

import (
	"fmt"
	"os"

	"github.com/outrigger/outrigger/internal/guest/guestinit"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "podvm-init: this is the init of a pod VM and runs as PID 1 only")
		os.Exit(2)
	}
	guestinit.Run()
}
