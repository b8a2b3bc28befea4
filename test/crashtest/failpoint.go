// SPDX-License-Identifier: Apache-2.0

// Package crashtest kills an adaptor at every boundary of a sandbox's life and
// checks what the next one makes of it.
package crashtest

import (
	"os"
	"syscall"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
)

// FailpointEnv names the point, in the form of adaptor.Point's String, at
// which a program with HookFromEnv ends.
const FailpointEnv = "OUTRIGGER_FAILPOINT"

// HookFromEnv returns a hook that ends the process with SIGKILL at the point
// in the environment.
func HookFromEnv() func(adaptor.Point) {
	at := os.Getenv(FailpointEnv)
	return func(p adaptor.Point) {
		if p.String() == at {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal has been sent; nothing may happen after it
		}
	}
}
