// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// options of a distribution that is made in an instant.
func options(t *testing.T) Options {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	return Options{
		Root: "../..", Output: filepath.Join(t.TempDir(), "dist"), Cache: t.TempDir(), Version: "v0.1.0", Prefix: defaultPrefix,
		Parts: []string{PartCharts}, Log: t.Logf,
	}
}

func list(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A distribution is there when it is whole, in place of the one that was there.
func TestMake(t *testing.T) {
	o := options(t)
	for _, version := range []string{"v0.1.0", "v0.1.1"} {
		o.Version = version
		if err := Make(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"SHA256SUMS", "charts", "provenance.intoto.json"}, list(t, o.Output)); d != "" {
		t.Errorf("distribution (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"ccm-operator-0.1.1.tgz", "outrigger-0.1.1.tgz"}, list(t, filepath.Join(o.Output, "charts"))); d != "" {
		t.Errorf("charts (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"dist"}, list(t, filepath.Dir(o.Output))); d != "" {
		t.Errorf("beside it (-want +got):\n%s", d)
	}
}

// One that is interrupted, or fails, leaves what was there, and nothing else.
func TestMakeInterrupted(t *testing.T) {
	o := options(t)
	if err := Make(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	o.Version = "v0.1.1"
	ctx, cancel := context.WithCancel(t.Context())
	o.Log = func(string, ...any) { cancel() } // after the first stage
	if err := Make(ctx, o); !errors.Is(err, context.Canceled) || explain(err) != "interrupted; nothing is changed" {
		t.Errorf("interrupted: %v", err)
	}
	o.Parts, o.Kustomize = []string{PartCharts, PartCRDs}, "/nowhere/kustomize"
	if err := Make(t.Context(), o); err == nil {
		t.Error("CRDs are made without kustomize")
	}
	if d := cmp.Diff([]string{"ccm-operator-0.1.0.tgz", "outrigger-0.1.0.tgz"}, list(t, filepath.Join(o.Output, "charts"))); d != "" {
		t.Errorf("charts (-want +got):\n%s", d)
	}
	for _, folder := range []string{filepath.Dir(o.Output), os.Getenv("TMPDIR")} {
		for _, name := range list(t, folder) {
			if name != "dist" {
				t.Errorf("left behind: %s", name)
			}
		}
	}
}
