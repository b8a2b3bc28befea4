// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRead: what is wrong is told with its line and without its
// value, and nothing is guessed.
func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "domain")
	for text, want := range map[string]string{
		"# a comment\n\n A=b=c \nB=\n": "",
		"A=b\nC s3cret\n":              "line 2: want VARIABLE=VALUE",
		"=s3cret\n":                    "line 1: want VARIABLE=VALUE",
		"A=b\nA=s3cret\n":              "line 2: A is given twice",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Read(file)
		if want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if want == "" && (err != nil || len(got) != 2 || got["A"] != "b=c" || got["B"] != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
