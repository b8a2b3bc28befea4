// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestPoolSaysWhatIsWrong(t *testing.T) {
	root, err := os.MkdirTemp("/tmp", "or")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	app := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := (&App{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}).Run(append([]string{"--root", root + "/r"}, args...))
		return code, out.String(), errs.String()
	}
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"pool", "create"}, []string{"--size 0", "at least 1"}},
		{[]string{"pool", "create", "--size", "-2", "A_B"}, []string{"--size -2", `"A_B"`}},
		{[]string{"pool", "create", "--size", "1", strings.Repeat("a", 26)}, []string{"at most 25"}},
		{[]string{"pool", "create", "--size", "1", "--memory", "1"}, []string{`--memory "1": want`}},
		{[]string{"pool", "create", "--size", "1", "--no-template", "--provider", "docker"}, []string{"--no-template"}},
		{[]string{"--socket", "/x", "pool", "create", "--size", "1"}, []string{"--socket", "/x"}},
		{[]string{"pool", "create", "--size", "1", "--cpus", "1000"}, []string{"a VM with 1000 CPUs: this host has ", "--cpus"}},
		{[]string{"pool", "rm"}, []string{"at least 1 arg"}},
		{[]string{"pool", "rm", "nosuch"}, []string{"nosuch", "outrigger pool ls"}},
	} {
		code, _, stderr := app(tc.args...)
		for _, want := range tc.want {
			if code != exitFailure || !strings.Contains(stderr, want) {
				t.Errorf("%q: exit code %d, stderr lacks %q:\n%s", tc.args, code, want, stderr)
			}
		}
	}
	if code, stdout, _ := app("pool", "ls", "-o", "json"); code != 0 || stdout != "[]\n" {
		t.Errorf("no pool: %d, %q", code, stdout)
	}
}
