// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/openstack"
)

func qcow2(t testing.TB) ([]byte, provider.ImageSource) {
	t.Helper()
	content := append([]byte("QFI\xfb"), bytes.Repeat([]byte("0123456789abcdef"), 1<<16)...)
	path := filepath.Join(t.TempDir(), "podvm.qcow2")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return content, provider.ImageSource{Name: "podvm-2", Location: path, Format: provider.FormatQcow2, Arch: "amd64"}
}

// importer is opened as for `image import`, with no setting of instances.
func importer(t testing.TB, c *sim.Cloud) *Provider {
	t.Helper()
	return mustOpen(t, simConfig(c, func(c *Config) {
		c.Image, c.Flavor, c.Flavors, c.Network, c.Groups = "", "", nil, "", nil
		forImport(c)
	}))
}

func TestImportImage(t *testing.T) {
	c := sim.Start(t)
	content, source := qcow2(t)
	p := importer(t, c)
	var done []int64
	id, err := p.ImportImage(t.Context(), source, func(at provider.ImageProgress) {
		if at.Total > 0 {
			done = append(done, at.Done)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(done) || len(done) < 2 || done[len(done)-1] != int64(len(content)) {
		t.Errorf("progress %v", done)
	}
	if !bytes.Equal(c.ImageContent(id), content) {
		t.Error("the image has another content")
	}
	maker := mustOpen(t, simConfig(c, func(c *Config) { c.Image = id }))
	if err := maker.ConfigVerifier(); err != nil {
		t.Error(err)
	}
	if _, err := p.ImportImage(t.Context(), source, nil); !errors.Is(err, provider.ErrAlreadyExists) || !strings.Contains(err.Error(), id) {
		t.Errorf("again: %v", err)
	}
}

func TestImportThroughFaults(t *testing.T) {
	_, source := qcow2(t)
	for _, fault := range []cloudsim.Fault{
		cloudsim.LostReply("upload_image"), cloudsim.Refused("upload_image", 401, "Unauthorized"), cloudsim.Refused("add_image", 429, "Throttled"),
	} {
		c := sim.Start(t)
		c.World.Script(fault)
		id, err := importer(t, c).ImportImage(t.Context(), source, nil)
		if err != nil || len(c.World.Own()) != 1 || len(c.ImageContent(id)) == 0 {
			t.Errorf("%+v: %q, %v; there are %v", fault, id, err, c.World.Own())
		}
	}
}

// TestFailedImports leave nothing.
func TestFailedImports(t *testing.T) {
	_, good := qcow2(t)
	for name, test := range map[string]struct {
		change func(*provider.ImageSource)
		fault  cloudsim.Fault
		class  error
		word   string
	}{
		"format":  {change: func(s *provider.ImageSource) { s.Format = provider.FormatOVA }, class: provider.ErrInvalidArgument, word: "ova"},
		"URL":     {change: func(s *provider.ImageSource) { s.Location = "https://host/podvm.qcow2" }, class: provider.ErrInvalidArgument, word: "absolute path"},
		"no file": {change: func(s *provider.ImageSource) { s.Location += "-gone" }, class: provider.ErrNotFound, word: "-gone"},
		"arch":    {change: func(s *provider.ImageSource) { s.Arch = "ppc64le" }, class: provider.ErrInvalidArgument, word: "ppc64le"},
		"name":    {change: func(s *provider.ImageSource) { s.Name = strings.Repeat("n", 256) }, class: provider.ErrInvalidArgument, word: "255"},
		"lost":    {fault: cloudsim.LostReply("add_image"), class: provider.ErrUnavailable},
		"quota":   {fault: cloudsim.Refused("upload_image", 413, "Request Entity Too Large"), class: provider.ErrQuota},
		"server":  {fault: cloudsim.Refused("upload_image", 503, "Service Unavailable"), class: provider.ErrUnavailable},
		"look":    {fault: cloudsim.Refused("get_image", 500, "Internal Server Error"), class: provider.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			c := sim.Start(t)
			source := good
			if test.change != nil {
				test.change(&source)
			} else {
				c.World.Script(test.fault)
			}
			id, err := importer(t, c).ImportImage(t.Context(), source, nil)
			if id != "" || !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.word) {
				t.Errorf("%q, %v", id, err)
			}
			wantNothing(t, c)
		})
	}
}

// TestAnImportThatIsGivenUp leaves nothing, and says what could not be removed.
func TestAnImportThatIsGivenUp(t *testing.T) {
	_, source := qcow2(t)
	for _, step := range []string{"uploading", "waiting for the cloud"} {
		c := sim.Start(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := importer(t, c).ImportImage(ctx, source, func(at provider.ImageProgress) {
			if at.Step == step {
				cancel()
			}
		})
		if !errors.Is(err, provider.ErrUnavailable) {
			t.Errorf("%s: %v", step, err)
		}
		wantNothing(t, c)
		cancel()
	}
	c := sim.Start(t)
	c.World.Script(cloudsim.Refused("upload_image", 503, "Service Unavailable"), cloudsim.Refused("delete_image", 403, "Forbidden"))
	if _, err := importer(t, c).ImportImage(t.Context(), source, nil); err == nil || !strings.Contains(err.Error(), "is left and must be deleted") {
		t.Error(err)
	}
}

func TestImportPolicies(t *testing.T) {
	c := sim.Start(t)
	_, source := qcow2(t)
	c.World.Script(cloudsim.Refused("get_image", 500, "Internal Server Error"))
	importer(t, c).ImportImage(t.Context(), source, nil)
	var seen []string
	var text strings.Builder
	for action := range c.World.Calls() {
		seen = append(seen, action)
	}
	slices.Sort(seen)
	for _, action := range seen {
		text.WriteString("- `" + action + "`\n")
	}
	cloudsim.CheckDoc(t, filepath.Join("..", "..", "docs", "providers", "openstack.md"), "importing", text.String())
	for _, action := range []string{"add_image", "get_image", "get_images", "upload_image"} {
		c := sim.Start(t)
		c.Deny(action)
		if _, err := importer(t, c).ImportImage(t.Context(), source, nil); !errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), action) {
			t.Errorf("without %s: %v", action, err)
		}
		wantNothing(t, c)
	}
}
