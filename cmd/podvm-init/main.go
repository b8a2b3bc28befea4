// SPDX-License-Identifier: Apache-2.0

// Command podvm-init is PID 1 of the pod VM, also of one that is a container
// ("podvm-init --container"), and the program that its kernel
// calls to load a module ("podvm-init -q -- NAME").
package main

import (
	"fmt"
	"os"

	"github.com/outrigger/outrigger/internal/guest/guestinit"
)

func main() {
	if os.Getpid() == 1 {
		if guestinit.InContainer(os.Args[1:], os.Getenv) {
			guestinit.RunInContainer()
		}
		guestinit.Run()
	}
	if len(os.Args) == 4 && os.Args[1] == "-q" && os.Args[2] == "--" {
		if err := guestinit.Modprobe(os.Args[3]); err != nil {
			os.Exit(1)
		}
		return
	}
	fmt.Fprintln(os.Stderr, "podvm-init: this is the init of a pod VM and runs as PID 1 only")
	os.Exit(2)
}
