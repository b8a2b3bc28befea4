// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/aws"
)

// importing are the permissions of who imports images.
var importing = []string{
	"ebs:CompleteSnapshot", "ebs:PutSnapshotBlock", "ebs:StartSnapshot", "ec2:CreateTags", "ec2:DeleteSnapshot", "ec2:DeregisterImage",
	"ec2:DescribeImages", "ec2:DescribeSnapshots", "ec2:RegisterImage",
}

// rawImage is a disk with a block, two of zeros, and the half of one.
func rawImage(t testing.TB) ([]byte, provider.ImageSource) {
	t.Helper()
	content := make([]byte, 3*blockSize+blockSize/2)
	copy(content, "boot")
	copy(content[3*blockSize:], "root")
	path := filepath.Join(t.TempDir(), "podvm.raw")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return content, provider.ImageSource{Name: "podvm-2", Location: path, Format: provider.FormatRaw, Arch: "amd64"}
}

// importer is opened as for `image import`, with no setting of instances.
func (s *stand) importer(t testing.TB) *Provider {
	t.Helper()
	return s.open(t, func(c *Config) {
		c.Image, c.Subnets, c.SecurityGroups, c.KeyName = "", nil, nil, ""
		forImport(c)
	})
}

func TestImportImage(t *testing.T) {
	s := newStand(t, lively)
	s.World.SetLag(2)
	content, source := rawImage(t)
	p := s.importer(t)
	var done []int64
	steps := map[string]bool{}
	id, err := p.ImportImage(t.Context(), source, func(at provider.ImageProgress) {
		steps[at.Step] = true
		if at.Total > 0 {
			done = append(done, at.Done)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(done) || done[len(done)-1] != int64(len(content)) || !steps["waiting for the snapshot"] || !steps["registering"] {
		t.Errorf("progress %v, steps %v", done, steps)
	}
	if got := s.ImageContent(id); len(got) < len(content) || !bytes.Equal(got[:len(content)], content) {
		t.Error("the snapshot is another")
	}
	if n := s.World.Calls()["ebs:PutSnapshotBlock"]; n != 2 {
		t.Errorf("%d blocks were written, of which two are not zero", n)
	}
	maker := s.open(t, func(c *Config) { c.Image = id })
	if err := maker.ConfigVerifier(); err != nil {
		t.Error(err)
	}
	if made, _ := s.Inspect(create(t, maker, "k").ID); made.Image != id {
		t.Errorf("the instance is of %s", made.Image)
	}
	if _, err := p.ImportImage(t.Context(), source, nil); !errors.Is(err, provider.ErrAlreadyExists) || !strings.Contains(err.Error(), id) {
		t.Errorf("again: %v", err)
	}
}

// TestImportThroughFaults: calls are repeated, and what is lost is looked up.
func TestImportThroughFaults(t *testing.T) {
	for _, fault := range []cloudsim.Fault{
		cloudsim.LostReply("ebs:StartSnapshot"), cloudsim.LostReply("ebs:PutSnapshotBlock"), cloudsim.LostReply("ec2:RegisterImage"),
		cloudsim.Refused("ebs:PutSnapshotBlock", 400, "RequestThrottledException").Repeated(2), cloudsim.Unreachable("ec2:DescribeSnapshots"),
		cloudsim.LostReply("ec2:RegisterImage").Repeated(5),
	} {
		s := newStand(t, lively)
		_, source := rawImage(t)
		s.World.Script(fault)
		id, err := s.importer(t).ImportImage(t.Context(), source, nil)
		if err != nil || len(s.World.Own()) != 2 {
			t.Errorf("%+v: %q, %v; there are %v", fault, id, err, s.World.Own())
		}
	}
}

// TestFailedImports leave nothing.
func TestFailedImports(t *testing.T) {
	_, good := rawImage(t)
	for name, test := range map[string]struct {
		change func(*provider.ImageSource)
		fault  cloudsim.Fault
		class  error
		word   string
	}{
		"format":   {change: func(s *provider.ImageSource) { s.Format = provider.FormatQcow2 }, class: provider.ErrInvalidArgument, word: "--format raw"},
		"URL":      {change: func(s *provider.ImageSource) { s.Location = "s3://bucket/podvm.raw" }, class: provider.ErrInvalidArgument, word: "absolute path"},
		"no file":  {change: func(s *provider.ImageSource) { s.Location += "-gone" }, class: provider.ErrNotFound, word: "-gone"},
		"arch":     {change: func(s *provider.ImageSource) { s.Arch = "s390x" }, class: provider.ErrInvalidArgument, word: "s390x"},
		"name":     {change: func(s *provider.ImageSource) { s.Name = "a:b" }, class: provider.ErrInvalidArgument, word: "a:b"},
		"quota":    {fault: cloudsim.Refused("ebs:StartSnapshot", 402, "ServiceQuotaExceededException"), class: provider.ErrQuota},
		"write":    {fault: cloudsim.Refused("ebs:PutSnapshotBlock", 400, "ValidationException").Skipping(1), class: provider.ErrInvalidArgument},
		"complete": {fault: cloudsim.Refused("ebs:CompleteSnapshot", 500, "InternalServerException").Repeated(-1), class: provider.ErrUnavailable},
		"register": {fault: cloudsim.Refused("ec2:RegisterImage", 400, "InvalidParameterValue"), class: provider.ErrInvalidArgument},
		"image":    {fault: cloudsim.Refused("ec2:DescribeImages", 403, "UnauthorizedOperation").Skipping(1), class: provider.ErrPermissionDenied, word: "ec2:DescribeImages"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, lively)
			source := good
			if test.change != nil {
				test.change(&source)
			} else {
				s.World.Script(test.fault)
			}
			id, err := s.importer(t).ImportImage(t.Context(), source, nil)
			if id != "" || !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.word) {
				t.Errorf("%q, %v", id, err)
			}
			s.wantNothing(t)
		})
	}
}

func TestImportOfABrokenSnapshot(t *testing.T) {
	s := newStand(t, sim.Options{FailSnapshots: true})
	_, source := rawImage(t)
	if id, err := s.importer(t).ImportImage(t.Context(), source, nil); id != "" || err == nil || !strings.Contains(err.Error(), "has failed") {
		t.Errorf("%q, %v", id, err)
	}
	s.wantNothing(t)
}

// TestAnImportThatIsGivenUp leaves nothing, and says what could not be removed.
func TestAnImportThatIsGivenUp(t *testing.T) {
	for _, step := range []string{"uploading", "waiting for the snapshot", "registering"} {
		s := newStand(t, lively)
		_, source := rawImage(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := s.importer(t).ImportImage(ctx, source, func(at provider.ImageProgress) {
			if at.Step == step {
				cancel()
			}
		})
		if !errors.Is(err, provider.ErrUnavailable) {
			t.Errorf("%s: %v", step, err)
		}
		s.wantNothing(t)
		cancel()
	}
	s := newStand(t, lively)
	s.World.Script(cloudsim.Refused("ebs:CompleteSnapshot", 400, "ValidationException"), cloudsim.Refused("ec2:DeleteSnapshot", 403, "UnauthorizedOperation"))
	_, source := rawImage(t)
	if _, err := s.importer(t).ImportImage(t.Context(), source, nil); err == nil || !strings.Contains(err.Error(), "is left and must be deleted") {
		t.Error(err)
	}
}

func TestImportPolicy(t *testing.T) {
	_, source := rawImage(t)
	var all cloudsim.Actions
	used := []string{}
	for _, fault := range []cloudsim.Fault{{}, cloudsim.Refused("ec2:DescribeImages", 400, "InvalidParameterValue").Skipping(1)} {
		s := newStand(t, lively)
		s.World.Script(fault)
		s.importer(t).ImportImage(t.Context(), source, nil)
		all.Add(s.World)
		used = append(used, s.Implied()...)
	}
	used = append(used, all.List()...)
	slices.Sort(used)
	if diff := cmp.Diff(slices.Compact(used), importing); diff != "" {
		t.Error(diff)
	}
	cloudsim.CheckDoc(t, page, "importing", "```\n"+strings.Join(importing, "\n")+"\n```")
	for _, action := range importing {
		if action == "ec2:DeleteSnapshot" || action == "ec2:DeregisterImage" {
			continue // only after a failure
		}
		s := newStand(t, sim.Options{Denied: map[string]bool{action: true}})
		if _, err := s.importer(t).ImportImage(t.Context(), source, nil); !errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), action) {
			t.Errorf("without %s: %v", action, err)
		}
		s.wantNothing(t)
	}
}
