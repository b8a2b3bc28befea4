// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

// vhdImage is a disk with something at both ends, in a VHD.
func vhdImage(t testing.TB) provider.ImageSource {
	t.Helper()
	path := filepath.Join(t.TempDir(), "podvm.vhd")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	footer := append([]byte("conectix"), make([]byte, vhdFooter-8)...)
	for at, data := range map[int64][]byte{0: []byte("boot"), 9 << 20: []byte("root"), 21 << 20: footer} {
		if _, err := file.WriteAt(data, at); err != nil {
			t.Fatal(err)
		}
	}
	return provider.ImageSource{Name: "podvm/linux/1.0.1", Location: path, Format: provider.FormatVHD, Arch: "amd64"}
}

// newImportStand is opened as for `image import`, with no setting of instances.
func newImportStand(t testing.TB) *stand {
	return newStand(t, azuresim.Options{}, func(c *Config) { c.ImageID, c.SubnetID = "", ""; forImport(c) })
}

func TestImportImage(t *testing.T) {
	s := newImportStand(t)
	source := vhdImage(t)
	var done []int64
	id, err := s.ImportImage(t.Context(), source, func(at provider.ImageProgress) {
		if at.Total > 0 {
			done = append(done, at.Done)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(done) || done[len(done)-1] != 21<<20+vhdFooter {
		t.Errorf("progress %v", done)
	}
	content, err := os.ReadFile(source.Location)
	if err != nil {
		t.Fatal(err)
	}
	ranges := s.cloud.ImageContent(id)
	for at, data := range ranges {
		if !bytes.Equal(data, content[at:at+int64(len(data))]) {
			t.Errorf("the range at %d is another", at)
		}
	}
	if len(ranges) != 3 {
		t.Errorf("%d ranges were written, of which three are not zero", len(ranges))
	}
	for _, r := range s.cloud.World.Own() {
		if r.Kind != azuresim.KindGallery {
			t.Errorf("left: %v", r)
		}
	}
	s.cfg = workload(t, s.cloud)
	s.cfg.ImageID = id
	s.Provider = s.reopen()
	if err := s.ConfigVerifier(); err != nil {
		t.Error(err)
	}
	s.mustDelete(s.mustCreate("key").ID)
	if _, err := s.ImportImage(t.Context(), source, nil); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("again: %v", err)
	}
	source.Name = "podvm/linux/1.0.2"
	if _, err := s.ImportImage(t.Context(), source, nil); err != nil {
		t.Errorf("the next version: %v", err)
	}
}

func TestImportThroughFaults(t *testing.T) {
	for _, fault := range []cloudsim.Fault{
		cloudsim.LostReply("blob:PutPage"), cloudsim.Refused("blob:PutPage", 503, "ServerBusy").Repeated(2), cloudsim.Unreachable("Microsoft.Compute/galleries/read"),
		cloudsim.Refused("Microsoft.Compute/disks/beginGetAccess/action", 429, "TooManyRequests"),
	} {
		s := newImportStand(t)
		s.cloud.World.Script(fault)
		if _, err := s.ImportImage(t.Context(), vhdImage(t), nil); err != nil || len(s.cloud.World.Own()) != 3 {
			t.Errorf("%+v: %v; there are %v", fault, err, s.cloud.World.Own())
		}
	}
}

// TestFailedImports leave nothing, and show no URL with which the disk could be
// written.
func TestFailedImports(t *testing.T) {
	good := vhdImage(t)
	odd := filepath.Join(t.TempDir(), "odd.vhd")
	if err := os.WriteFile(odd, append([]byte("conectix"), make([]byte, vhdFooter-8)...), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*provider.ImageSource)
		fault  cloudsim.Fault
		class  error
		word   string
	}{
		"format":  {change: func(s *provider.ImageSource) { s.Format = provider.FormatQcow2 }, class: provider.ErrInvalidArgument, word: "--format vhd"},
		"URL":     {change: func(s *provider.ImageSource) { s.Location = "https://host/podvm.vhd" }, class: provider.ErrInvalidArgument, word: "absolute path"},
		"no file": {change: func(s *provider.ImageSource) { s.Location += "-gone" }, class: provider.ErrNotFound, word: "-gone"},
		"size":    {change: func(s *provider.ImageSource) { s.Location = odd }, class: provider.ErrInvalidArgument, word: "whole MiB"},
		"arch":    {change: func(s *provider.ImageSource) { s.Arch = "s390x" }, class: provider.ErrInvalidArgument, word: "s390x"},
		"name":    {change: func(s *provider.ImageSource) { s.Name = "podvm" }, class: provider.ErrInvalidArgument, word: "GALLERY/IMAGE/VERSION"},
		"gallery": {fault: cloudsim.Refused("Microsoft.Compute/galleries/write", 409, "QuotaExceeded"), class: provider.ErrQuota},
		"write":   {fault: cloudsim.Refused("blob:PutPage", 403, "AuthenticationFailed"), class: provider.ErrPermissionDenied},
		"silent":  {fault: cloudsim.Unreachable("blob:PutPage").Repeated(-1), class: provider.ErrUnavailable},
		"access":  {fault: cloudsim.Refused("Microsoft.Compute/disks/beginGetAccess/action", 403, "AuthorizationFailed"), class: provider.ErrPermissionDenied},
		"version": {fault: cloudsim.Refused("gallery:GalleryImageVersion", 0, "InvalidParameter"), class: provider.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			s := newImportStand(t)
			source := good
			if test.change != nil {
				test.change(&source)
			} else {
				s.cloud.World.Script(test.fault)
			}
			id, err := s.ImportImage(t.Context(), source, nil)
			if id != "" || !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.word) || strings.Contains(err.Error(), "sig=") {
				t.Errorf("%q, %v", id, err)
			}
			s.wantNothing()
		})
	}
}

// TestAnImportThatIsGivenUp leaves nothing, and says what could not be removed.
func TestAnImportThatIsGivenUp(t *testing.T) {
	for _, step := range []string{"making the gallery", "making the disk", "uploading", "waiting for the cloud"} {
		s := newImportStand(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := s.ImportImage(ctx, vhdImage(t), func(at provider.ImageProgress) {
			if at.Step == step {
				cancel()
			}
		})
		if !errors.Is(err, provider.ErrUnavailable) {
			t.Errorf("%s: %v", step, err)
		}
		s.wantNothing()
		cancel()
	}
	s := newImportStand(t)
	s.cloud.World.Script(cloudsim.Refused("blob:PutPage", 403, "AuthenticationFailed"), cloudsim.Refused("Microsoft.Compute/disks/delete", 403, "AuthorizationFailed"))
	if _, err := s.ImportImage(t.Context(), vhdImage(t), nil); err == nil || !strings.Contains(err.Error(), "is left and must be deleted") {
		t.Error(err)
	}
}

// TestTwoImportsOfOneVersion: the slower one removes nothing of the faster one.
func TestTwoImportsOfOneVersion(t *testing.T) {
	s := newImportStand(t)
	source, faster := vhdImage(t), ""
	_, err := s.ImportImage(t.Context(), source, func(at provider.ImageProgress) {
		if at.Step != "uploading" || faster != "" {
			return
		}
		var err error
		if faster, err = s.ImportImage(t.Context(), source, nil); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, provider.ErrAlreadyExists) || strings.Contains(err.Error(), "is left") {
		t.Error(err)
	}
	if len(s.cloud.ImageContent(faster)) != 3 || len(s.cloud.World.Own()) != 3 {
		t.Errorf("there are %v", s.cloud.World.Own())
	}
}

// TestAVersionOfAnotherDisk is not this import's to remove.
func TestAVersionOfAnotherDisk(t *testing.T) {
	s := newImportStand(t)
	source := vhdImage(t)
	id, err := s.ImportImage(t.Context(), source, nil)
	if err != nil {
		t.Fatal(err)
	}
	i, err := s.newImport(source, func(provider.ImageProgress) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := i.removeVersion(t.Context()); err != nil || len(s.cloud.ImageContent(id)) != 3 {
		t.Errorf("%v; it is gone", err)
	}
}

// TestImportRole writes the role of who imports images.
func TestImportRole(t *testing.T) {
	s := newImportStand(t)
	s.cloud.World.Script(cloudsim.Refused("gallery:GalleryImageVersion", 0, "InvalidParameter"))
	s.ImportImage(t.Context(), vhdImage(t), nil)
	actions := slices.Sorted(maps.Keys(onlyMicrosoft(s.cloud.World.Calls())))
	r := role{
		Name: "Outrigger image import", IsCustom: true, Description: "Makes images of pod VMs.", Actions: actions,
		NotActions: []string{}, AssignableScopes: []string{"/subscriptions/SUBSCRIPTION"},
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	cloudsim.CheckFile(t, overlay+"import-role.json", string(data)+"\n")
	cloudsim.CheckDoc(t, page, "importing", "```json\n"+string(data)+"\n```\n")
	for _, action := range actions {
		if strings.HasSuffix(action, "/delete") || strings.Contains(action, "/locations/") {
			continue // only after a failure, or of every operation
		}
		s := newImportStand(t)
		s.cloud.Deny(action)
		if _, err := s.ImportImage(t.Context(), vhdImage(t), nil); !errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), action) {
			t.Errorf("without %s: %v", action, err)
		}
	}
}
