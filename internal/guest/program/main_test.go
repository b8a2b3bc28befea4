// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const asGuest = "OUTRIGGER_TEST_AS_GUEST"

// TestMain lets the test binary be the executable as well.
func TestMain(m *testing.M) {
	if os.Getenv(asGuest) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestNameChoosesTheProgram(t *testing.T) {
	for name, want := range map[string]string{
		"/init":             "podvm-init: ",
		"process-user-data": "process-user-data ",
		"/usr/local/bin/agent-protocol-forwarder": "agent-protocol-forwarder ",
		"podvm-agent":   "podvm-agent ",
		"anything else": "podvm-agent ",
	} {
		cmd := exec.Command("/proc/self/exe", "--version")
		cmd.Args[0], cmd.Env = name, append(os.Environ(), asGuest+"=1")
		out, err := cmd.CombinedOutput()
		if !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %q, %v; want %q", name, out, err, want)
		}
	}
}
