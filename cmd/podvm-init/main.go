// SPDX-License-Identifier: Apache-2.0

// Command podvm-init is PID 1 of the pod VM, also of one that is a container
// ("podvm-init --container"), and the program that its kernel
// calls to load a module ("podvm-init -q -- NAME").
package main

import "github.com/outrigger/outrigger/internal/guest/guestinit"

func main() { guestinit.Main() }
