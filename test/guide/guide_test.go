// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func fenced(kind, body string) string { return "```" + kind + "\n" + body + "\n```\n" }

func TestParse(t *testing.T) {
	blocks, err := Parse("# Title\n\n" + fenced("sh", "a\nb") + "text\n\n" + fenced("console", "$ c") + fenced("sh fails", "d") + "\n" + fenced("output", "e"))
	if err != nil || len(blocks) != 2 {
		t.Fatalf("%+v, %v", blocks, err)
	}
	if b := blocks[0]; b.Line != 4 || b.Code != "a\nb" || b.Fails {
		t.Errorf("%+v", b)
	}
	if b := blocks[1]; b.Code != "d" || !b.Fails || len(b.Output) != 1 || b.Output[0] != "e" {
		t.Errorf("%+v", b)
	}
	long, err := Parse(fenced("sh long", "f") + fenced("output", "g") + fenced("sh long fails", "i") + fenced("sh", "h"))
	if err != nil || len(long) != 3 || !long[0].Long || long[0].Fails || !long[1].Long || !long[1].Fails || len(Short(long)) != 1 || Short(long)[0].Code != "h" {
		t.Errorf("%+v, %v", long, err)
	}
	for _, wrong := range []string{"```sh\na\n", fenced("output", "x")} {
		if blocks, err := Parse(wrong); err == nil {
			t.Errorf("%q: %+v", wrong, blocks)
		}
	}
}

func TestRun(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skipf("bash is needed: %v; install it to run this test", err)
	}
	for name, tc := range map[string]struct{ document, want string }{
		"all is well":     {fenced("sh", "mkdir x; cd x; a=1; sleep 1000 &") + fenced("sh", "test $a = 1; echo in $PWD.") + fenced("output", "in …x."), ""},
		"a wrong command": {fenced("sh", "true") + "\n" + fenced("sh", "echo said; no-such-command\ntrue"), "line 6: exit status 127"},
		"a pipe":          {fenced("sh", "false | cat"), "line 2: exit status 1"},
		"must fail":       {fenced("sh fails", "echo why; false") + fenced("output", "why") + fenced("sh", "true"), ""},
		"must fail, not":  {fenced("sh fails", "true"), "must fail"},
		"other output":    {fenced("sh", "echo one two") + fenced("output", "one"), `lacks "one"`},
		"variables":       {fenced("sh", `echo "$UNSET_VARIABLE"`), "UNSET_VARIABLE"},
	} {
		t.Run(name, func(t *testing.T) {
			blocks, err := Parse(tc.document)
			if err != nil {
				t.Fatal(err)
			}
			err = Run(t.Context(), t.TempDir(), []string{"PATH=" + os.Getenv("PATH")}, blocks)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestLike(t *testing.T) {
	for pattern, want := range map[string]bool{"one two": true, "one": false, "…two": true, "one…": true, "o…t…o": true, "…three": false, "one…tw": false, "…o": true, "…": true} {
		if got := like("one two", pattern); got != want {
			t.Errorf("%q: %v", pattern, got)
		}
	}
}
