// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"errors"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

// imageSource is an object that the cloud has.
var imageSource = provider.ImageSource{Name: "podvm-0123456789ab", Location: "oss://" + sim.Object, Format: provider.FormatQcow2, Arch: "amd64"}

func TestImport(t *testing.T) {
	c := sim.New(t, sim.Options{})
	p := newProvider(t, settings(c))
	var told []provider.ImageProgress
	id, err := p.ImportImage(t.Context(), imageSource, func(at provider.ImageProgress) { told = append(told, at) })
	if err != nil || id == "" || len(told) == 0 || told[0].Total != 100 {
		t.Fatalf("%q, %v, progress %v", id, err, told)
	}
	i := mustCreate(t, p, "imported", provider.InstanceTypeSpec{Image: id})
	if got := c.Requests()[0].Get("ImageId"); got != id {
		t.Errorf("instance %s of image %s", i.ID, got)
	}
	if _, err := p.ImportImage(t.Context(), imageSource, nil); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("a second time: %v", err)
	}
}

func TestImportFails(t *testing.T) {
	c := sim.New(t, sim.Options{})
	p := newProvider(t, settings(c))
	for name, test := range map[string]struct {
		change func(*provider.ImageSource)
		class  error
	}{
		"a file":       {func(s *provider.ImageSource) { s.Location = "/podvm.qcow2" }, provider.ErrInvalidArgument},
		"no object":    {func(s *provider.ImageSource) { s.Location = "oss://bucket" }, provider.ErrInvalidArgument},
		"another":      {func(s *provider.ImageSource) { s.Location += "-none" }, provider.ErrNotFound},
		"format":       {func(s *provider.ImageSource) { s.Format = provider.FormatOVA }, provider.ErrInvalidArgument},
		"architecture": {func(s *provider.ImageSource) { s.Arch = "s390x" }, provider.ErrInvalidArgument},
		"name":         {func(s *provider.ImageSource) { s.Name = "1" }, provider.ErrInvalidArgument},
		"broken":       {func(s *provider.ImageSource) { s.Format = provider.FormatVHD }, provider.ErrInvalidArgument},
	} {
		source := imageSource
		test.change(&source)
		if _, err := p.ImportImage(t.Context(), source, nil); !errors.Is(err, test.class) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := p.ImportImage(ctx, imageSource, func(provider.ImageProgress) { cancel() })
	if !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("given up: %v", err)
	}
	if left := c.Images(); len(left) != 1 { // the one that is always there
		t.Errorf("images %v", left)
	}
}

// TestTheFirstImage: whoever imports it has no id of one to set.
func TestTheFirstImage(t *testing.T) {
	m := NewManager()
	m.Set(config.Values{"alibabacloud-access-key-id": "id", "alibabacloud-secret-access-key": "secret"})
	p, err := m.NewImporter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Teardown(); err != nil {
		t.Error(err)
	}
}
