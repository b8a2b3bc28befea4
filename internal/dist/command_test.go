// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outrigger/outrigger/internal/program"
)

// What is wrong is said in one sentence, before anything is built.
func TestBadInput(t *testing.T) {
	taken := t.TempDir()
	if err := os.WriteFile(filepath.Join(taken, "thesis.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"help":              {[]string{"-h"}, program.ExitOK, "-key-password-file"},
		"unknown flag":      {[]string{"-x"}, program.ExitUsage, "-x"},
		"argument":          {[]string{"deb"}, program.ExitUsage, `"deb" is an argument`},
		"architecture":      {[]string{"-arch", "amd64,sparc"}, program.ExitError, `-arch "sparc": want amd64 or arm64`},
		"part":              {[]string{"-only", "rpm"}, program.ExitError, `-only "rpm": want some of archive, deb`},
		"no registry":       {[]string{"-prefix", ""}, program.ExitError, "-prefix is empty"},
		"key":               {[]string{"-key", "/nowhere/cosign.key"}, program.ExitError, "/nowhere/cosign.key"},
		"folder of another": {[]string{"-output", taken}, program.ExitError, "neither empty nor an earlier distribution"},
		"version":           {[]string{"-version", "a b"}, program.ExitError, "-version"},
		"not a folder":      {[]string{"-output", "/proc/nosuch/dist"}, program.ExitError, "/proc/nosuch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
			output := filepath.Join(t.TempDir(), "dist")
			var out strings.Builder
			code := Run(append([]string{"-root", "../..", "-output", output}, c.args...), &out, &out)
			if code != c.code || !strings.Contains(out.String(), c.want) {
				t.Errorf("code %d: %s", code, &out)
			}
			if code == program.ExitError && strings.Count(out.String(), "\n") != 1 {
				t.Errorf("more than a line:\n%s", &out)
			}
			if left, _ := os.ReadDir(filepath.Dir(output)); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(taken, "thesis.txt")); err != nil {
		t.Error(err)
	}
}

// The password is taken from the file, without the end of its line, or from the
// environment.
func TestPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("of a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("COSIGN_PASSWORD", "of the environment")
	none := ""
	for want, from := range map[string]*string{"of a file": &file, "of the environment": &none} {
		if got, err := takePassword(from)(); string(got) != want || err != nil {
			t.Errorf("password %q, %v; want %q", got, err, want)
		}
	}
	os.Unsetenv("COSIGN_PASSWORD")
	if got, err := takePassword(&none)(); got != nil || err != nil {
		t.Errorf("without one: %q, %v", got, err)
	}
}

// What is started has nothing that changes its bytes, and no secret.
func TestEnvironment(t *testing.T) {
	for name, value := range map[string]string{"COSIGN_PASSWORD": "secret", "GOFLAGS": "-race", "GOAMD64": "v4", "CGO_CFLAGS": "-O0", "LC_ALL": "tr_TR"} {
		t.Setenv(name, value)
	}
	b := &builder{source: &source{date: testDate}}
	env := strings.Join(b.environment(), "\n") + "\n"
	for _, unwanted := range []string{"secret", "-race", "v4", "-O0", "tr_TR"} {
		if strings.Contains(env, "="+unwanted+"\n") {
			t.Errorf("%s is passed on", unwanted)
		}
	}
	for _, wanted := range []string{"PATH=" + os.Getenv("PATH"), "CGO_ENABLED=0", "GOAMD64=v1", "SOURCE_DATE_EPOCH=1700000000"} {
		if !strings.Contains(env, wanted+"\n") {
			t.Errorf("there is no %s", wanted)
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for _, err := range []error{fmt.Errorf("deb: %w", syscall.ENOSPC), fmt.Errorf("go build: write x: no space left on device")} {
		if text := explain(err); !strings.Contains(text, "make room") {
			t.Errorf("%v does not say what to do: %s", err, text)
		}
	}
}
