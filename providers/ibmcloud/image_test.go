// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloud"
)

// importing are the actions that only the import of images needs.
var importing = []string{"is.image.image.create", "is.image.image.delete"}

var source = provider.ImageSource{Name: "podvm-2", Location: sim.Object, Format: provider.FormatQcow2, Arch: "amd64"}

func TestImportImage(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	calls := 0
	id, err := p.ImportImage(t.Context(), source, func(provider.ImageProgress) { calls++ })
	if err != nil || calls == 0 {
		t.Fatalf("%q, %v, %d calls of progress", id, err, calls)
	}
	wanted := spec(key)
	wanted.Image = id
	if made := create(t, p, wanted); s.made(t, made.ID, "image", "id") != id {
		t.Error("the instance is not made of it")
	}
	if _, err := p.ImportImage(t.Context(), source, nil); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("again: %v", err)
	}
}

// TestFailedImports leave nothing.
func TestFailedImports(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*provider.ImageSource)
		class  error
		word   string
	}{
		"object": {func(s *provider.ImageSource) { s.Location = "cos://us-south/my-bucket/broken.qcow2" }, provider.ErrInvalidArgument, "image_data_corrupted"},
		"file":   {func(s *provider.ImageSource) { s.Location = "/tmp/podvm.qcow2" }, provider.ErrInvalidArgument, "ibmcloud cos upload"},
		"format": {func(s *provider.ImageSource) { s.Format = provider.FormatRaw }, provider.ErrInvalidArgument, "raw"},
		"name":   {func(s *provider.ImageSource) { s.Name = "Pod VM" }, provider.ErrInvalidArgument, "Pod VM"},
		"arch":   {func(s *provider.ImageSource) { s.Arch = "arm64" }, provider.ErrInvalidArgument, "arm64"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			from := source
			tc.change(&from)
			id, err := s.mustOpen(t).ImportImage(t.Context(), from, nil)
			if id != "" || !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.word) {
				t.Errorf("%q, %v", id, err)
			}
			s.wantNothing(t)
		})
	}
}

// TestAnImportThatIsGivenUp leaves nothing either.
func TestAnImportThatIsGivenUp(t *testing.T) {
	s := newStand(t)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.mustOpen(t).ImportImage(ctx, source, func(provider.ImageProgress) { cancel() }); !errors.Is(err, provider.ErrUnavailable) {
		t.Error(err)
	}
	s.wantNothing(t)
}

func TestImportRole(t *testing.T) {
	s := newStand(t)
	gone := source
	gone.Location = "cos://us-south/my-bucket/broken.qcow2"
	if _, err := s.mustOpen(t).ImportImage(t.Context(), gone, nil); err == nil {
		t.Error("a broken image was taken")
	}
	var used []string
	for _, name := range s.Used() {
		if name != "is.image.image.read" {
			used = append(used, name)
		}
	}
	if diff := cmp.Diff(used, importing); diff != "" {
		t.Error(diff)
	}
	cloudsim.CheckDoc(t, page, "importing", "```\n"+strings.Join(importing, "\n")+"\n```")
}

// TestTheFirstImage: whoever imports it has no id of one to set.
func TestTheFirstImage(t *testing.T) {
	m := NewManager()
	m.Set(config.Values{"zone-name": "us-south-1,us-south-2", "api-key": "key"})
	p, err := m.NewImporter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Teardown(); err != nil {
		t.Error(err)
	}
}
