// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outrigger/outrigger/provider/cloudinit"
)

// text is a source that returns one document.
type text string

func (text) Name() string                            { return "text" }
func (s text) Fetch(context.Context) ([]byte, error) { return []byte(s), nil }

// later fails until its time has come.
type later struct {
	at   time.Time
	data string
}

func (later) Name() string { return "later" }
func (s later) Fetch(context.Context) ([]byte, error) {
	if time.Now().Before(s.at) {
		return nil, errors.New("not yet")
	}
	return []byte(s.data), nil
}

func document(t testing.TB, files ...cloudinit.WriteFile) string {
	t.Helper()
	doc, err := cloudinit.CloudConfig{WriteFiles: files}.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func provision(t *testing.T, sources ...Source) (string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "peerpod")
	return dir, Provision(t.Context(), Options{Sources: sources, Dir: dir, Timeout: time.Nanosecond, Logger: slog.New(slog.DiscardHandler)})
}

func TestFilesOnTheList(t *testing.T) {
	dir, err := provision(t, text(document(t,
		cloudinit.WriteFile{Path: "/run/peerpod/apf.json", Content: `{"pod-name":"p"}`},
		cloudinit.WriteFile{Path: "/run/peerpod/scratch-space.marker"},
		cloudinit.WriteFile{Path: "/run/peerpod/insecure-registries", Content: "192.0.2.1\n"},
		cloudinit.WriteFile{Path: "/etc/shadow", Content: "root::"},
		cloudinit.WriteFile{Path: "/run/peerpod/sub/apf.json", Content: "x"},
		cloudinit.WriteFile{Path: "/run/peerpod/policy.rego", Content: "not by this way"},
	)))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	// aa.toml is that of the empty initdata.
	if got, want := strings.Join(names, " "), "aa.toml apf.json initdata initdata.digest insecure-registries scratch-space.marker"; got != want {
		t.Errorf("provisioned %s, want %s", got, want)
	}
	info, err := os.Stat(filepath.Join(dir, "apf.json"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("apf.json holds a private key and has mode %v, %v", info.Mode(), err)
	}
}

// TestNoInitData: VMs without initdata measure what upstream's do, and an attester finds
// the file; a second run, with the file of the first, changes nothing.
func TestNoInitData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "peerpod")
	doc := document(t, cloudinit.WriteFile{Path: "/run/peerpod/aa.toml", Content: "by itself"})
	for range 2 {
		if err := Provision(t.Context(), Options{Sources: []Source{text(doc)}, Dir: dir, Timeout: time.Nanosecond, Logger: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		written, err := os.ReadFile(filepath.Join(dir, "initdata"))
		if err != nil {
			t.Fatal(err)
		}
		data, err := cloudinit.DecodeInitData(string(written))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"initdata.digest": data.Digest(), "aa.toml": "by itself"} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
				t.Errorf("%s is %q, %v, want %q", name, got, err, want)
			}
		}
	}
}

func TestInitDataIsUnpacked(t *testing.T) {
	data, err := cloudinit.NewInitData("sha384", "0.1.0", map[string]string{"policy.rego": "package policy\n", "other": "x"})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := data.Encode()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := provision(t, text(document(t, cloudinit.WriteFile{Path: "/run/peerpod/initdata", Content: encoded})))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"policy.rego": "package policy\n", "initdata.digest": data.Digest()} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "other")); err == nil {
		t.Error("an entry that is not used became a file")
	}
}

func TestBadUserDataIsNamed(t *testing.T) {
	for name, tc := range map[string]struct{ document, want string }{
		"garbage":  {"\x00\xff garbage", "#cloud-config"},
		"runcmd":   {"#cloud-config\nruncmd: [reboot]\n", "runcmd"},
		"initdata": {document(t, cloudinit.WriteFile{Path: "/run/peerpod/initdata", Content: "%%%"}), "initdata"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := provision(t, text(tc.document)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v does not name %q", err, tc.want)
			}
		})
	}
}

func TestNoCloudSeed(t *testing.T) {
	seed := t.TempDir()
	if _, err := provision(t, NoCloud(seed)); err == nil || !strings.Contains(err.Error(), seed) {
		t.Errorf("a missing seed: %v", err)
	}
	doc := document(t, cloudinit.WriteFile{Path: "/run/peerpod/auth.json", Content: "{}"})
	if err := os.WriteFile(filepath.Join(seed, "user-data"), []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := provision(t, NoCloud(seed))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "auth.json")); err != nil {
		t.Error(err)
	}
}

func TestWaitsForUserData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doc := document(t, cloudinit.WriteFile{Path: "/run/peerpod/apf.json", Content: "{}"})
		o := Options{Dir: t.TempDir(), Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}
		began := time.Now()
		o.Sources = []Source{later{began.Add(12 * time.Second), doc}}
		if err := Provision(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 12750*time.Millisecond {
			t.Errorf("took %v, want the first retry after 12 s of 0.25, 0.5, 1, 2, 4, 5", took)
		}
		o.Sources = []Source{later{began.Add(time.Hour), doc}}
		began = time.Now()
		if err := Provision(t.Context(), o); err == nil || !strings.Contains(err.Error(), "within 1m0s: later: not yet") {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("gave up after %v", took)
		}
	})
}

func FuzzProvision(f *testing.F) {
	f.Add([]byte("#cloud-config\nwrite_files:\n- path: /run/peerpod/apf.json\n  content: |\n      {}\n"))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		Provision(t.Context(), Options{Sources: []Source{text(data)}, Dir: dir, Timeout: time.Nanosecond, Logger: slog.New(slog.DiscardHandler), retry: time.Nanosecond})
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if _, ok := allowed[e.Name()]; !ok && e.Name() != initDataDigest && e.Name() != "policy.rego" {
				t.Errorf("user-data wrote %s", e.Name())
			}
		}
	})
}
