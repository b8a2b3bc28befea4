// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/bench/promises"
)

// stubs take the place of programs that test/bench.sh runs: to build is to have
// this program, to measure is to have figures, or to fail.
const (
	stubID = "echo 0"
	stubGo = `case $1 in
build) ln -s "$SELF" "$3" ;;
test) while [ "$1" != -figures ]; do shift; done; cp "$FIGURES" "$2"; exit "$MEASURED" ;;
esac`
)

// TestScript runs test/bench.sh, as `make bench` does, over figures that are
// there already.
func TestScript(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		added, output float64
		others        float64
		measured      string
		status        int
		want          string
	}{
		"all kept":             {added: 99, output: 3, measured: "0", want: "of 2 promises 2 are kept"},
		"one is not":           {added: 101, output: 3, measured: "0", status: 1, want: "≤ 100 µs promised, 101 µs measured"},
		"one is not judged":    {added: 99, output: 6, others: 0.5, measured: "0", status: 3, want: "not judged: busy machine"},
		"a measurement failed": {added: 99, output: 3, measured: "1", status: 1, want: "a measurement failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			run := &promises.Run{Asked: []string{"relay-added", "first-output"}, Figures: []promises.Figure{
				{Promise: "relay-added", Value: test.added}, {Promise: "first-output", Value: test.output, Others: test.others}}}
			if err := run.Write(dir + "/figures"); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("../../bench.sh", "-only=nothing")
			cmd.Env = append(os.Environ(), asCommand+"=1", "PATH="+stub(t)+":"+os.Getenv("PATH"), "SELF="+self(t), "FIGURES="+dir+"/figures", "MEASURED="+test.measured, "OUTRIGGER_CACHE="+dir, "TMPDIR="+dir)
			out, _ := cmd.CombinedOutput()
			if status := cmd.ProcessState.ExitCode(); status != test.status || !strings.Contains(string(out), test.want) {
				t.Errorf("exit status %d, want %d and %q\n%s", status, test.status, test.want, out)
			}
			if left, _ := filepath.Glob(dir + "/tmp*"); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
			if _, err := os.Stat(dir + "/bench-history.jsonl"); err != nil {
				t.Error(err)
			}
		})
	}
}

func stub(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"id": stubID, "go": stubGo} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
