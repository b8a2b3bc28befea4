// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/gcp"
)

// importing are the permissions that only the import of images needs.
var importing = []string{"compute.globalOperations.get", "compute.images.create", "compute.images.delete"}

var source = provider.ImageSource{Name: "podvm-2", Location: sim.Object, Format: provider.FormatGCP, Arch: "amd64"}

func TestImportImage(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	var seen []int64
	id, err := p.ImportImage(t.Context(), source, func(at provider.ImageProgress) { seen = append(seen, at.Done) })
	if err != nil || id != "projects/"+sim.Project+"/global/images/podvm-2" {
		t.Fatalf("%q, %v", id, err)
	}
	if !slices.IsSorted(seen) || seen[len(seen)-1] != 100 {
		t.Errorf("progress %v", seen)
	}
	if _, err := imagePath(sim.Project, id); err != nil {
		t.Errorf("instances cannot be made of it: %v", err)
	}
	if _, err := p.ImportImage(t.Context(), source, nil); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("again: %v", err)
	}
	if len(s.World.Own()) != 1 {
		t.Errorf("the books show %v", s.World.Own())
	}
}

// TestFailedImports leave nothing.
func TestFailedImports(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*provider.ImageSource)
		class  error
		word   string
	}{
		"object":   {func(s *provider.ImageSource) { s.Location = "gs://my-bucket/gone.tar.gz" }, provider.ErrNotFound, "gone"},
		"file":     {func(s *provider.ImageSource) { s.Location = "/tmp/podvm.tar.gz" }, provider.ErrInvalidArgument, "gcloud storage cp"},
		"bucket":   {func(s *provider.ImageSource) { s.Location = "gs://my-bucket" }, provider.ErrInvalidArgument, "BUCKET"},
		"format":   {func(s *provider.ImageSource) { s.Format = provider.FormatQcow2 }, provider.ErrInvalidArgument, "qcow2"},
		"name":     {func(s *provider.ImageSource) { s.Name = "Pod VM" }, provider.ErrInvalidArgument, "Pod VM"},
		"arch":     {func(s *provider.ImageSource) { s.Arch = "s390x" }, provider.ErrInvalidArgument, "s390x"},
		"existing": {func(s *provider.ImageSource) { s.Name = sim.Image }, provider.ErrAlreadyExists, sim.Image},
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
	_, err := s.mustOpen(t).ImportImage(ctx, source, func(provider.ImageProgress) { cancel() })
	if !errors.Is(err, provider.ErrUnavailable) {
		t.Error(err)
	}
	s.wantNothing(t)
}

// TestAnImportThatIsGivenUpAtOnce: the cloud has begun, and nobody knows with what.
func TestAnImportThatIsGivenUpAtOnce(t *testing.T) {
	s := newStand(t)
	s.World.Script(cloudsim.Slow("compute.images.insert", 100*time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil && s.World.Calls()["compute.images.insert"] == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, err := s.mustOpen(t).ImportImage(ctx, source, func(provider.ImageProgress) { cancel() })
	if !errors.Is(err, provider.ErrUnavailable) || s.World.Calls()["compute.images.delete"] == 0 {
		t.Errorf("%v after %v", err, s.World.Calls())
	}
	s.wantNothing(t)
}

func TestImportRole(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	gone := source
	gone.Location = "gs://my-bucket/gone.tar.gz"
	p.ImportImage(t.Context(), gone, nil)
	if diff := cmp.Diff(s.Used(), importing); diff != "" {
		t.Error(diff)
	}
	cloudsim.CheckDoc(t, page, "importing", "```\n"+strings.Join(importing, "\n")+"\n```")
}

// TestTheFirstImage: whoever imports it has no id of one to set.
func TestTheFirstImage(t *testing.T) {
	m := NewManager()
	m.Set(config.Values{"gcp-project-id": "my-project"})
	p, err := m.NewImporter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Teardown(); err != nil {
		t.Error(err)
	}
}
