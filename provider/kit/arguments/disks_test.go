// SPDX-License-Identifier: Apache-2.0

package arguments_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/kit/arguments"
)

type (
	disks     = provider.DiskController
	snapshots = provider.DiskSnapshotter
)

func TestBadDisksDoNotReachTheProvider(t *testing.T) {
	create := func(key string, spec provider.DiskSpec) func(context.Context, disks, snapshots) error {
		return func(ctx context.Context, d disks, _ snapshots) error {
			_, err := d.CreateDisk(ctx, key, spec)
			return err
		}
	}
	for name, tc := range map[string]struct {
		call func(context.Context, disks, snapshots) error
		want string
	}{
		"no key":          {create("", provider.DiskSpec{Bytes: 1}), "the key is empty"},
		"a long key":      {create(strings.Repeat("k", 65), provider.DiskSpec{Bytes: 1}), "is not 1 to 64"},
		"no size":         {create("k", provider.DiskSpec{}), "a disk of 0 bytes"},
		"two sources":     {create("k", provider.DiskSpec{FromDisk: "d", FromSnapshot: "s"}), "and not of both"},
		"a limit of less": {create("k", provider.DiskSpec{Bytes: 2, Limit: 1}), "at most 1"},
		"get nothing":     {func(ctx context.Context, d disks, _ snapshots) error { _, err := d.GetDisk(ctx, ""); return err }, "the disk id is empty"},
		"list all":        {func(ctx context.Context, d disks, _ snapshots) error { _, err := d.ListDisks(ctx, nil); return err }, "no tags"},
		"delete nothing":  {func(ctx context.Context, d disks, _ snapshots) error { return d.DeleteDisk(ctx, "") }, "the disk id is empty"},
		"attach nothing": {func(ctx context.Context, d disks, _ snapshots) error {
			_, err := d.AttachDisk(ctx, "", "i")
			return err
		}, "the disk id is empty"},
		"attach nowhere": {func(ctx context.Context, d disks, _ snapshots) error {
			_, err := d.AttachDisk(ctx, "d", "")
			return err
		}, "the instance id is empty"},
		"detach nothing": {func(ctx context.Context, d disks, _ snapshots) error { return d.DetachDisk(ctx, "", "i") }, "the disk id is empty"},
		"detach nowhere": {func(ctx context.Context, d disks, _ snapshots) error { return d.DetachDisk(ctx, "d", "") }, "the instance id is empty"},
		"resize nothing": {func(ctx context.Context, d disks, _ snapshots) error { _, err := d.ResizeDisk(ctx, "", 1); return err }, "the disk id is empty"},
		"resize to less": {func(ctx context.Context, d disks, _ snapshots) error {
			_, err := d.ResizeDisk(ctx, "d", -1)
			return err
		}, "a disk of -1 bytes"},
		"no key of a snapshot": {func(ctx context.Context, _ disks, s snapshots) error {
			_, err := s.CreateSnapshot(ctx, "", "d", nil)
			return err
		}, "the key is empty"},
		"a snapshot of nothing": {func(ctx context.Context, _ disks, s snapshots) error {
			_, err := s.CreateSnapshot(ctx, "k", "", nil)
			return err
		}, "the disk id is empty"},
		"get no snapshot":    {func(ctx context.Context, _ disks, s snapshots) error { _, err := s.GetSnapshot(ctx, ""); return err }, "the snapshot id is empty"},
		"list all snapshots": {func(ctx context.Context, _ disks, s snapshots) error { _, err := s.ListSnapshots(ctx, nil); return err }, "no tags"},
		"delete no snapshot": {func(ctx context.Context, _ disks, s snapshots) error { return s.DeleteSnapshot(ctx, "") }, "the snapshot id is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			p := careless(t)
			err := tc.call(t.Context(), capability[disks](t, p), capability[snapshots](t, p))
			if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v; want an invalid argument with %q", err, tc.want)
			}
		})
	}
}

func TestGoodDisksPass(t *testing.T) {
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := capability[disks](t, arguments.Checked(cloud))
	made, err := d.CreateDisk(t.Context(), strings.Repeat("k", 64), provider.DiskSpec{Bytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.CreateDisk(t.Context(), "copy", provider.DiskSpec{FromDisk: made.ID}); err != nil {
		t.Error(err)
	}
	if _, err := d.ResizeDisk(t.Context(), made.ID, 1); err != nil {
		t.Error(err)
	}
}
