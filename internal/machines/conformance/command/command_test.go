// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outrigger/outrigger/internal/checkreport"
	"github.com/outrigger/outrigger/internal/machines/conformance"
	"github.com/outrigger/outrigger/internal/program"
)

func TestWrongUsage(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.yaml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(dir, "full.yaml")
	if err := os.WriteFile(full, []byte("{apiVersion: v1, kind: ACluster}\n---\n{apiVersion: v1, kind: AMachine}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                                       "--file",
		"objects.yaml":                           "unexpected argument",
		"--no-such-flag":                         "--help",
		"--file x --core maybe":                  "play or running",
		"--file x -o xml":                        "text or json",
		"--file x --run (":                       "--run",
		"--file x --run ^none$":                  "matches no check",
		"--file x --quiet 0s":                    "--quiet",
		"--file " + dir + "/none.yaml":           "--file",
		"--file " + empty:                        "no infrastructure of a cluster",
		"--release " + empty + " --file " + full: "--release",
	} {
		var out, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &stderr); code != program.ExitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: exit code %d, %q; want %d and %q", args, code, &stderr, program.ExitUsage, want)
		}
	}
}

func TestList(t *testing.T) {
	var out bytes.Buffer
	if code := run(t.Context(), []string{"--list", "-o", "json", "--run", "^pause-"}, &out, &out); code != program.ExitOK {
		t.Fatalf("exit code %d: %s", code, &out)
	}
	var rows []checkreport.Check
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, check := range conformance.Checks() {
		if strings.HasPrefix(check.Name, "pause-") {
			want++
		}
	}
	if len(rows) != want || rows[0].Contract == "" {
		t.Errorf("%d rows, want %d: %+v", len(rows), want, rows)
	}
}

// TestShellLeavesADaemon: a command may leave a manager in the background, whose
// output is the command's. It is not waited for.
func TestShellLeavesADaemon(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(pipe, os.O_RDWR, 0) // its end is that of the daemon
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	_, err = new(app).shell(t.Context(), "--restart-command", "cat <"+pipe+" & echo started")
	if err != nil {
		t.Error(err)
	}
	if _, err := new(app).shell(t.Context(), "--restart-command", "echo why >&2; exit 3"); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("a command that fails: %v", err)
	}
}
