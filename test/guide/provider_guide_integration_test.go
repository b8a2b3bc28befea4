// SPDX-License-Identifier: Apache-2.0

//go:build integration

package guide

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestProviderGuide follows the guide to the letter: an empty home folder and a
// checkout in it.
func TestProviderGuide(t *testing.T) {
	need(t, "bash", "gcc", "go") // gcc builds the Go plugin
	follow(t, providerGuide, 15*time.Minute)
}

// longVar has also those blocks run that take minutes.
const longVar = "OUTRIGGER_GUIDE_LONG"

func need(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v; install it to run this test", err)
		}
	}
}

// follow runs a document in an empty home folder with a checkout in it, and
// more variables.
func follow(t *testing.T, document string, limit time.Duration, env ...string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if short := Short(blocks); len(short) < len(blocks) && os.Getenv(longVar) == "" {
		t.Logf("%s: %d blocks take minutes and are left out; to run them too: %s=1 go test -tags integration -timeout 40m -run '^%s$' ./test/guide",
			filepath.Base(document), len(blocks)-len(short), longVar, t.Name())
		blocks = short
	}
	home := t.TempDir()
	checkout(t, filepath.Join(home, "outrigger"))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := Run(ctx, home, append(environment(t, home), env...), blocks); err != nil {
		t.Errorf("%s: %v", document, err)
	}
}

// environment is that of a user who has just logged in, with the caches of
// this machine and its way to modules: `go mod tidy` asks for more of them than
// any build of ours has needed. The compiler's flags are those of the Makefile, so
// that nothing is compiled twice, and it collects garbage as seldom as there; nobody
// debugs what is linked.
func environment(t *testing.T, home string) []string {
	t.Helper()
	env := []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8",
		"GOTOOLCHAIN=local", "GOGC=400", "GOFLAGS=-modcacherw -ldflags=-w " + os.Getenv("GOFLAGS"), "CGO_ENABLED=" + os.Getenv("CGO_ENABLED"),
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GONOPROXY", "GONOSUMDB", "GOINSECURE"} {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	return env
}

// checkout copies this repository without what is built.
func checkout(t *testing.T, to string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case name == ".git" && !entry.IsDir(): // of a worktree
			return nil
		case name == ".git" || name == "bin":
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		case !entry.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), data, info.Mode().Perm())
	})
	if err != nil {
		t.Fatal(err)
	}
}
