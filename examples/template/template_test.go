// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/kit/files"
)

// TestTemplateIsShort: an author reads all of it before copying.
func TestTemplateIsShort(t *testing.T) {
	const limit = 120
	code, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(code, []byte("\n")); lines > limit {
		t.Errorf("main.go has %d lines, at most %d are allowed", lines, limit)
	} else if guide, err := os.ReadFile("../../docs/provider-guide.md"); err != nil || !bytes.Contains(guide, fmt.Appendf(nil, "does all of it in %d lines", lines)) {
		t.Errorf("docs/provider-guide.md does not say that main.go has %d lines: %v", lines, err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if file != "main.go" && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s: the template is one file", file)
		}
	}
}

// newManager returns a configured manager, as the adaptor would make it.
func newManager(t *testing.T, dir string) *config.Manager[Config] {
	t.Helper()
	manager := config.New("template", open)
	manager.Set(config.Values{"template-dir": dir})
	return manager
}

func mustOpen(t *testing.T, dir string) provider.Provider {
	t.Helper()
	p, err := newManager(t, dir).NewProvider()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// subject is a provider of the folder dir that open opens.
func subject(dir string, open func() provider.Provider) conformance.Subject {
	return conformance.Subject{
		Provider: open(),
		Reopen:   open,
		Leaks: func() (left []string, err error) {
			entries, err := os.ReadDir(dir)
			for _, entry := range entries {
				left = append(left, entry.Name())
			}
			return left, err
		},
		ReadUserData: func(ctx context.Context, id string) (string, error) {
			i, err := files.Read[instance](ctx, (&cloud{Config{Dir: dir}}).path(id))
			return i.UserData, err
		},
	}
}

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		dir := t.TempDir()
		return subject(dir, func() provider.Provider { return mustOpen(t, dir) })
	})
}

func TestConfigurationErrorsNameTheSetting(t *testing.T) {
	for name, tc := range map[string]struct{ setting, value, want string }{
		"no folder":       {"template-type", "small", "-template-dir (TEMPLATE_DIR)"},
		"relative folder": {"template-dir", "here", "-template-dir (TEMPLATE_DIR)"},
		"bad pattern":     {"template-types", "m[", "-template-types (TEMPLATE_TYPES)"},
	} {
		t.Run(name, func(t *testing.T) {
			manager := config.New("template", open)
			values := config.Values{"template-dir": "/dir"}
			if tc.setting == "template-type" {
				values = config.Values{}
			}
			values[tc.setting] = tc.value
			manager.Set(values)
			_, err := manager.NewProvider()
			if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v does not name %s", err, tc.want)
			}
		})
	}
}

func TestConfigVerifierNamesTheFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	err := mustOpen(t, dir).ConfigVerifier()
	if !errors.Is(err, provider.ErrNotFound) || !strings.Contains(err.Error(), "TEMPLATE_DIR") {
		t.Errorf("error %v", err)
	}
}

// TestLostFolderIsNoEmptyCloud: whoever collects garbage would believe it.
func TestLostFolderIsNoEmptyCloud(t *testing.T) {
	p := mustOpen(t, filepath.Join(t.TempDir(), "missing")).(provider.Lister)
	if list, err := p.ListInstances(t.Context(), map[string]string{"a": "b"}); err == nil {
		t.Errorf("the list of a folder that is gone is %v", list)
	}
}

func TestFilesAreSecret(t *testing.T) {
	dir := t.TempDir()
	p := mustOpen(t, dir)
	if _, err := p.CreateInstance(t.Context(), "pod", "key", cloudinit.Raw("secret"), provider.InstanceTypeSpec{}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: others can read the user-data", info.Mode(), err)
	}
}
