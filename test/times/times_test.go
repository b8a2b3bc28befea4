// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// events are of two packages; the last line is that of a run that was killed.
const events = `{"Action":"output","Package":"github.com/outrigger/outrigger/a","Test":"TestSkipped","Output":"    a_test.go:3: needs a moon\n"}
{"Action":"output","Package":"github.com/outrigger/outrigger/a","Test":"TestSkipped","Output":"--- SKIP: TestSkipped (0.00s)\n"}
{"Action":"skip","Package":"github.com/outrigger/outrigger/a","Test":"TestSkipped"}
{"Action":"pass","Package":"github.com/outrigger/outrigger/a","Test":"TestFast","Elapsed":0.5}
{"Action":"pass","Package":"github.com/outrigger/outrigger/a","Elapsed":1}
{"Action":"fail","Package":"github.com/outrigger/outrigger/b/a","Test":"TestSlow","Elapsed":7}
{"Action":"fail","Package":"github.com/outrigger/outrigger/b/a","Elapsed":8}
{"Action":"pa`

func TestReport(t *testing.T) {
	processor := `{"folder":"/src/outrigger/a","processor":0.25,"elapsed":1}` + "\n" + `{"folder":"/src/outrigger/b/a","processor":3,"elapsed":8}` + "\n"
	actions := `[{"Mode":"link","Package":"github.com/outrigger/outrigger/b/a.test","CmdUser":1500000000,"CmdSys":500000000},{"Mode":"build","CmdUser":4000000000}]`
	var out strings.Builder
	if err := report([]string{"-json", write(t, events), "-processor", write(t, processor), "-actions", write(t, actions)}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 packages: 9 s one after the other, 3 s of processor time in tests, 2 s in links, 4 s in compilers.",
		"| `b/a` | 8.0 | 3.0 | 5.0 | 2.0 |\n| `a` | 1.0 | 0.2 | 0.8 | 0.0 |\n",
		"| `b/a TestSlow` | 7.0 |\n| `a TestFast` | 0.5 |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks\n%s\n%s", want, out.String())
		}
	}
}

func TestSkipped(t *testing.T) {
	var out strings.Builder
	if err := report([]string{"-json", write(t, events), "-skipped"}, &out); err != nil {
		t.Fatal(err)
	}
	if want := "a TestSkipped: a_test.go:3: needs a moon\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestBadInput(t *testing.T) {
	for name, args := range map[string][]string{
		"no events":       nil,
		"no such file":    {"-json", "/nowhere/events"},
		"broken graph":    {"-json", write(t, events), "-actions", write(t, "{")},
		"broken spending": {"-json", write(t, events), "-processor", write(t, "{\n")},
	} {
		if err := report(args, &strings.Builder{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestRun: the exit code is that of the program, and what it took is noted.
func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "processor")
	for code, script := range map[int]string{0: "exit 0", 3: "exit 3", 1: "kill -9 $$"} {
		if got := run(file, []string{"sh", "-c", script}); got != code {
			t.Errorf("%s: exit code %d, want %d", script, got, code)
		}
	}
	if got := run(file, []string{"/nowhere/program"}); got != 1 {
		t.Errorf("no program: exit code %d, want 1", got)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	here, _ := os.Getwd()
	notes := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(notes) != 3 {
		t.Fatalf("%d lines for 3 programs: %s", len(notes), data)
	}
	for _, line := range notes {
		var s spent
		if err := json.Unmarshal([]byte(line), &s); err != nil || s.Folder != here || s.Elapsed <= 0 {
			t.Errorf("%s: %v", line, err)
		}
	}
}
