// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/program"
)

// TestWrongUsage: nothing is begun, the error names what is wrong, and the exit
// code is 2.
func TestWrongUsage(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what is begun nevertheless ends
	for args, want := range map[string]string{
		"make":                         `unknown command "make"`,
		"build all":                    "all",
		"build --colour":               "--colour",
		"build -o xml":                 `--out "xml"`,
		"build --repository Not/Lower": "--repository",
		"build --repository a/b:v1":    "--repository",
		"build --kubernetes-version 1": "--kubernetes-version",
	} {
		cmd := rootCommand()
		cmd.SetArgs(strings.Fields(args))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(ctx); err == nil || program.Exit("node-image", io.Discard, err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
