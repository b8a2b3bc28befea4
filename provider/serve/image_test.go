// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	t.Chdir(t.TempDir())
	if err := os.WriteFile("podvm.qcow2", []byte("QFI\xfb"), 0o600); err != nil {
		t.Fatal(err)
	}
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

// TestImportOfNoFile: the file is looked at before anybody logs in.
func TestImportOfNoFile(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("podvm.qcow2", make([]byte, 512), 0o600); err != nil {
		t.Fatal(err)
	}
	for location, want := range map[string]string{
		"gone.qcow2": "there is no file", "podvm.qcow2": "lacks the mark of the format", "podvm.vmdk": "say it with --import-format",
	} {
		code, _, stderr := run(modern(), "--import", location, "--import-name", "podvm")
		if code == 0 || !strings.Contains(stderr, want) || strings.Contains(stderr, "modern-dir") {
			t.Errorf("%s: code %d, stderr %q; want %q", location, code, stderr, want)
		}
	}
}

// TestNoImportAsksForNothing: settings would not help.
func TestNoImportAsksForNothing(t *testing.T) {
	type needy struct {
		Region string `flag:"needy-region" required:"true" usage:"region"`
	}
	manager := config.New("needy", func(needy) (provider.Provider, error) { return nil, errors.New("opened") }).NoImport()
	for _, m := range []provider.CloudProvider{manager, manager.Fresh()} {
		code, _, stderr := run(m, "--import", "oss://bucket/podvm.qcow2", "--import-name", "podvm")
		if code != 1 || !strings.Contains(stderr, "imports no images") || strings.Contains(stderr, "needy-region") {
			t.Errorf("code %d, stderr %q", code, stderr)
		}
	}
}

// TestImportNeedsFewerSettings: who imports the first image has no image's id.
func TestImportNeedsFewerSettings(t *testing.T) {
	type needy struct {
		Image  string `flag:"needy-image" required:"true" usage:"image"`
		Region string `flag:"needy-region" required:"true" usage:"region"`
		Disk   string `flag:"needy-disk" choices:"a,b" usage:"disk; default the cloud's"`
	}
	manager := config.New("needy", func(s needy) (provider.Provider, error) {
		cloud, err := fake.New(fake.Options{Dir: t.TempDir()})
		return importing{cloud}, err
	}).ForImport(func(s *needy) { s.Image = "none" })
	code, _, stderr := run(manager, "--import", "oss://bucket/podvm.qcow2", "--import-name", "podvm")
	if code == 0 || !strings.Contains(stderr, "-needy-region: it is required") || strings.Contains(stderr, "needy-image") {
		t.Errorf("without a region: code %d, stderr %q", code, stderr)
	}
	if code, _, stderr := run(manager, "--import", "oss://bucket/podvm.qcow2", "--import-name", "podvm", "--needy-region=r"); code != 0 {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}
