// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
)

// importing takes images of one name.
type importing struct{ *fake.Cloud }

func (importing) ImportImage(_ context.Context, source provider.ImageSource, progress func(provider.ImageProgress)) (string, error) {
	if source.Name != "podvm" {
		return "", fmt.Errorf("%w: image %s", provider.ErrAlreadyExists, source.Name)
	}
	for done := range int64(101) {
		progress(provider.ImageProgress{Step: "uploading", Done: done, Total: 100})
	}
	progress(provider.ImageProgress{Step: "waiting for the cloud"})
	return fmt.Sprintf("img-1 of %s %s %s", source.Location, source.Format, source.Arch), nil
}

func TestImport(t *testing.T) {
	manager := config.New("modern", func(s settings) (provider.Provider, error) {
		cloud, err := fake.New(fake.Options{Dir: s.Dir})
		return importing{cloud}, err
	})
	dir := "--modern-dir=" + t.TempDir()
	code, stdout, stderr := run(manager, "--import", "podvm.qcow2", "--import-name", "podvm", dir)
	path, err := filepath.Abs("podvm.qcow2")
	if err != nil {
		t.Fatal(err)
	}
	if want := "img-1 of " + path + " qcow2 amd64\n"; code != 0 || stdout != want {
		t.Errorf("code %d, stdout %q, stderr %q; want %q", code, stdout, stderr, want)
	}
	// A line for each tenth.
	if lines := strings.Count(stderr, "\n"); lines != 12 || !strings.Contains(stderr, "uploading: 50 %\n") || !strings.HasSuffix(stderr, "waiting for the cloud\n") {
		t.Errorf("%d lines of progress:\n%s", lines, stderr)
	}
	code, stdout, stderr = run(manager, "--import", "oss://bucket/podvm.qcow2", "--import-name", "other", dir)
	if code != 1 || stdout != "" || !strings.Contains(stderr, "already exists: image other") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	code, _, stderr = run(modern(), "--import", "podvm.qcow2", "--import-name", "podvm", dir)
	if code != 1 || !strings.Contains(stderr, "imports no images") {
		t.Errorf("a provider that cannot: code %d, stderr %q", code, stderr)
	}
}
