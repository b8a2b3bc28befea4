// SPDX-License-Identifier: Apache-2.0

//go:build failpoints

package main

import "github.com/outrigger/outrigger/test/crashtest"

// failpoint ends the process, as by kill -9, at the point that the environment
// names. It exists only in programs built for crash tests.
var failpoint = crashtest.HookFromEnv()
