// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func outrigger(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	app := &App{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &err}
	return app.Run(args), out.String(), err.String()
}

func TestImageImportRunsTheProvider(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "provider-mycloud")
	script := "#!/bin/sh\necho \"$@\"\necho uploading >&2\n[ \"$2\" != bad.raw ] || exit 2\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Chdir(dir)
	for _, name := range []string{"a.img", "bad.raw"} {
		if err := os.WriteFile(name, make([]byte, 512), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, stdout, stderr := outrigger("image", "import", "--provider", "mycloud", "--name", "podvm", "--format", "raw", "a.img", "--", "-region", "r")
	if want := "--import a.img --import-name podvm --import-arch amd64 --import-format raw -region r\n"; code != 0 || stdout != want || stderr != "uploading\n" {
		t.Errorf("code %d, stdout %q, stderr %q; want %q", code, stdout, stderr, want)
	}
	if code, _, _ := outrigger("image", "import", "--plugin", program, "--name", "podvm", "bad.raw"); code != 2 {
		t.Errorf("code %d, want the program's", code)
	}
}

func TestImageImportUsage(t *testing.T) {
	t.Setenv("CLOUD_PROVIDER", "")
	for want, args := range map[string][]string{
		"--provider is missing":               {"--name", "n", "a.raw"},
		"program provider-nosuch is neither":  {"--provider", "nosuch", "--name", "n", "a.raw"},
		"there is no file":                    {"--provider", "nosuch", "--plugin", "/bin/true", "--name", "n", "gone.raw"},
		"say it with --format":                {"--plugin", "/bin/true", "--name", "n", "a.vmdk"},
		"is not a qcow2 file":                 {"--plugin", "/bin/true", "--name", "n", "--format", "qcow2", "/etc/passwd"},
		`architecture "mips" is none`:         {"--plugin", "/bin/true", "--name", "n", "--arch", "mips", "a.raw"},
		`required flag(s) "name"`:             {"--provider", "nosuch", "a.raw"},
		"requires at least 1 arg":             {"--provider", "nosuch", "--name", "n"},
		"settings of the provider come after": {"--provider", "nosuch", "--name", "n", "a.raw", "b.raw"},
	} {
		code, _, stderr := outrigger(append([]string{"image", "import"}, args...)...)
		if code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%q: code %d, stderr %q; want %q", args, code, stderr, want)
		}
	}
}
