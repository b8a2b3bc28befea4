// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

var diskChecks = []Check{
	{"disk", "CreateDisk returns a disk that look-ups show, with its key and tags.", []need{needsDisks}, checkDisk},
	{"disk-repeated", "Two calls with the same key give the same disk.", []need{needsDisks}, checkDiskRepeated},
	{"disk-concurrent", "Two calls with the same key at the same time give the same disk.", []need{needsDisks}, checkDiskConcurrent},
	{"disk-reopened", "Two calls with the same key from different processes give the same disk.", []need{needsDisks, needsReopen}, checkDiskReopened},
	{"disk-lost-reply", "Two calls with the same key after a lost reply give one disk.", []need{needsDisks}, checkDiskLostReply},
	{"disk-other-spec", "A key that has a disk of another size or source is ErrAlreadyExists.", []need{needsDisks}, checkDiskOtherSpec},
	{"disk-fits", "A key that has a disk which fits the spec gives that disk.", []need{needsDisks}, checkDiskFits},
	{"disk-after-delete", "A key is free again when its disk is deleted.", []need{needsDisks}, checkDiskAfterDelete},
	{"disk-size", "A disk is at least so large as its spec says.", []need{needsDisks}, checkDiskSize},
	{"disk-limit", "A disk is not larger than the limit of its spec.", []need{needsDisks}, checkDiskLimit},
	{"disk-size-huge", "A size that the cloud does not have is ErrInvalidArgument, ErrCapacity or ErrQuota.", []need{needsDisks}, checkDiskSizeHuge},
	{"disk-unknown-type", "A type of disks that the cloud does not have is ErrInvalidArgument, which names it.", []need{needsDisks}, checkDiskUnknownType},
	{"disk-unknown-zone", "A zone that the cloud does not have is ErrInvalidArgument, which names it.", []need{needsDisks}, checkDiskUnknownZone},
	{"disk-refused", "A disk that no provider can make is ErrInvalidArgument.", []need{needsDisks}, checkDiskRefused},
	{"disk-get-absent", "GetDisk returns ErrNotFound for an id that does not exist.", []need{needsDisks}, checkDiskGetAbsent},
	{"disk-list", "ListDisks returns every disk whose tags include all of match, with key, size and tags.", []need{needsDisks}, checkDiskList},
	{"disk-list-others", "ListDisks does not show disks of others.", []need{needsDisks}, checkDiskListOthers},
	{"disk-list-empty-match", "ListDisks with an empty match is ErrInvalidArgument.", []need{needsDisks}, checkDiskListEmptyMatch},
	{"disk-list-foreign", "ListDisks shows no disk that CreateDisk did not make.", []need{needsDisks, needsForeign}, checkDiskListForeign},
	{"disk-delete", "DeleteDisk removes a disk.", []need{needsDisks}, checkDiskDelete},
	{"disk-delete-absent", "Deleting a disk that does not exist returns nil.", []need{needsDisks}, checkDiskDeleteAbsent},
	{"disk-delete-attached", "Deleting a disk that is attached is ErrInUse, and it stays attached.", []need{needsDisks}, checkDiskDeleteAttached},
	{"disk-delete-foreign", "Deleting a disk that CreateDisk did not make is ErrPermissionDenied, and it stays.", []need{needsDisks, needsForeign}, checkDiskDeleteForeign},
	{"disk-delete-others", "DeleteDisk deletes nothing else.", []need{needsDisks}, checkDiskDeleteOthers},
	{"disk-no-access", "Disks without access to the account are an error and not ErrNotFound, nor an empty list.", []need{needsDisks, needsNoAccess}, checkDiskNoAccess},
	{"disk-resize", "ResizeDisk makes a disk at least so large.", []need{needsDisks}, checkDiskResize},
	{"disk-resize-less", "ResizeDisk to a size that the disk has already leaves it as it is.", []need{needsDisks}, checkDiskResizeLess},
	{"disk-resize-attached", "ResizeDisk makes a disk larger that is attached, and it stays attached.", []need{needsDisks}, checkDiskResizeAttached},
	{"disk-resize-absent", "Resizing a disk that does not exist is ErrNotFound.", []need{needsDisks}, checkDiskResizeAbsent},
	{"disk-copy", "A copy of a disk is as large, and does not need the disk any more.", []need{needsDisks}, checkDiskCopy},
	{"disk-copy-absent", "A copy of a disk that does not exist is ErrNotFound.", []need{needsDisks}, checkDiskCopyAbsent},
	{"disk-copy-less", "A copy that is less than the disk is ErrInvalidArgument.", []need{needsDisks}, checkDiskCopyLess},
	{"disk-copy-content", "A copy of a disk has its content.", []need{needsDisks, needsContent}, checkDiskCopyContent},
}

func checkDisk(r *run) {
	c := r.newDisk()
	made := r.mustDisk(c)
	got := r.mustGetDisk(made.ID)
	if got.ID != made.ID || got.Key != c.key || got.Bytes != made.Bytes || got.Type != made.Type || got.Zone != made.Zone ||
		got.InstanceID != "" || !provider.HasTags(got.Tags, c.spec.Tags) {
		r.Errorf("GetDisk returned %+v, want %+v with key %s and the tags %v", got, made, c.key, c.spec.Tags)
	}
}

func checkDiskRepeated(r *run) {
	c := r.newDisk()
	first := r.mustDisk(c)
	for range repetitions - 1 {
		r.checkSameID(first.ID, r.mustDisk(c).ID)
	}
}

func checkDiskConcurrent(r *run) {
	c := r.newDisk()
	r.ledger.lostDisk()
	controller := power[provider.DiskController](r)
	ids := make(chan string, racers)
	for _, err := range r.atOnce("CreateDisk", func(ctx context.Context) error {
		disk, err := controller.CreateDisk(ctx, c.key, c.spec)
		if err == nil && disk != nil {
			ids <- disk.ID
		}
		return err
	}) {
		r.Errorf("CreateDisk, called %d times at once: %v", racers, err)
	}
	close(ids)
	for id := range ids {
		r.checkOneDisk(c, id)
	}
}

func checkDiskReopened(r *run) {
	c := r.newDisk()
	first := r.mustDisk(c)
	c.provider = r.reopen()
	r.checkSameID(first.ID, r.mustDisk(c).ID)
}

// checkDiskLostReply loses the reply on this side, as checkKeyLostReply does.
func checkDiskLostReply(r *run) {
	for ctx := range r.cutShort(r.instants()) {
		c := r.newDisk()
		_, err := r.createDiskWith(ctx, c)
		r.checkRetryable("CreateDisk", err)
		made := r.mustDisk(c)
		r.checkOneDisk(c, made.ID)
		r.mustDeleteDisk(made.ID)
	}
}

func checkDiskOtherSpec(r *run) {
	c := r.newDisk()
	made := r.mustDisk(c)
	for what, change := range map[string]func(*provider.DiskSpec){
		"a larger size":  func(s *provider.DiskSpec) { s.Bytes, s.Limit = made.Bytes+1, 0 },
		"a lesser limit": func(s *provider.DiskSpec) { s.Bytes, s.Limit = 1, made.Bytes-1 },
		"a source":       func(s *provider.DiskSpec) { s.FromDisk = made.ID },
	} {
		other := c
		change(&other.spec)
		_, err := r.createDisk(other)
		r.checkClass("CreateDisk of the same key with "+what, err, provider.ErrAlreadyExists)
	}
	r.checkOneDisk(c, made.ID)
}

func checkDiskFits(r *run) {
	c := r.newDisk()
	made := r.mustDisk(c)
	for _, spec := range []provider.DiskSpec{
		{Bytes: 1}, {Bytes: made.Bytes, Limit: made.Bytes}, {Bytes: 1, Limit: made.Bytes + 1, Type: made.Type, Zone: made.Zone},
	} {
		spec.Tags = c.spec.Tags
		r.checkSameID(made.ID, r.mustDisk(diskCreation{r.provider, c.key, spec}).ID)
	}
}

func checkDiskAfterDelete(r *run) {
	c := r.newDisk()
	for range 3 {
		r.mustDeleteDisk(r.mustDisk(c).ID)
	}
	r.checkOneDisk(c, r.mustDisk(c).ID)
}

func checkDiskSize(r *run) {
	c := r.newDisk()
	c.spec.Bytes++
	made := r.mustDisk(c)
	if got := r.mustGetDisk(made.ID).Bytes; made.Bytes < c.spec.Bytes || got != made.Bytes {
		r.Errorf("a disk of %d bytes was made with %d, and is shown with %d", c.spec.Bytes, made.Bytes, got)
	}
}

// checkDiskLimit asks for a size that many clouds can only exceed.
func checkDiskLimit(r *run) {
	c := r.newDisk()
	c.spec.Bytes++
	c.spec.Limit = c.spec.Bytes
	switch made, err := r.createDisk(c); {
	case err != nil:
		r.checkClass("CreateDisk of a size that the cloud does not have", err, provider.ErrInvalidArgument)
	case made.Bytes > c.spec.Limit:
		r.Errorf("CreateDisk made a disk of %d bytes, whose limit was %d", made.Bytes, c.spec.Limit)
	}
}

func checkDiskSizeHuge(r *run) {
	c := r.newDisk()
	c.spec.Bytes = 1 << 61
	_, err := r.createDisk(c)
	r.checkClass("CreateDisk of 2 EiB", err, provider.ErrInvalidArgument, provider.ErrCapacity, provider.ErrQuota)
}

const noDiskType, noZone = "outrigger-no-such-disk-type", "outrigger-no-such-zone"

func checkDiskUnknownType(r *run) {
	c := r.newDisk()
	c.spec.Type = noDiskType
	r.checkDiskNames(c, noDiskType)
}

func checkDiskUnknownZone(r *run) {
	c := r.newDisk()
	c.spec.Zone = noZone
	r.checkDiskNames(c, noZone)
}

func (r *run) checkDiskNames(c diskCreation, name string) {
	r.Helper()
	_, err := r.createDisk(c)
	r.checkClass("CreateDisk with "+name, err, provider.ErrInvalidArgument)
	if err != nil && !strings.Contains(err.Error(), name) {
		r.Errorf("the error does not name %s, which is wrong: %v", name, err)
	}
}

func checkDiskRefused(r *run) {
	for what, change := range map[string]func(*diskCreation){
		"an empty key":           func(c *diskCreation) { c.key = "" },
		"no size":                func(c *diskCreation) { c.spec.Bytes = 0 },
		"a negative size":        func(c *diskCreation) { c.spec.Bytes = -1 },
		"a limit below the size": func(c *diskCreation) { c.spec.Limit = c.spec.Bytes - 1 },
		"two sources":            func(c *diskCreation) { c.spec.FromDisk, c.spec.FromSnapshot = absentID, absentID },
	} {
		c := r.newDisk()
		change(&c)
		_, err := r.createDisk(c)
		r.checkClass("CreateDisk with "+what, err, provider.ErrInvalidArgument)
	}
}

func checkDiskGetAbsent(r *run) {
	for range repetitions {
		_, err := r.getDisk(absentID)
		r.checkClass("GetDisk of an id that does not exist", err, provider.ErrNotFound, provider.ErrInvalidArgument)
	}
}

func checkDiskList(r *run) {
	a, b := r.newDisk(), r.newDisk()
	made := map[string]*provider.Disk{a.key: r.mustDisk(a), b.key: r.mustDisk(b)}
	r.eventually(func() error {
		list, err := r.listDisks(r.owner)
		if err == nil && len(list) != len(made) {
			err = fmt.Errorf("the list shows %d disks, want %d", len(list), len(made))
		}
		for _, d := range list {
			want := made[d.Key]
			if want == nil || d.ID != want.ID || d.Bytes != want.Bytes || !provider.HasTags(d.Tags, r.diskTags(d.Key)) {
				err = errors.Join(err, fmt.Errorf("the list shows %+v", d))
			}
		}
		return err
	})
}

func checkDiskListOthers(r *run) {
	mine, theirs := r.newDisk(), r.newDisk()
	theirs.spec.Tags[provider.TagNode] += "-other"
	r.mustDisk(mine)
	other := r.mustDisk(theirs)
	r.checkOneDisk(theirs, other.ID)
	list, err := r.listDisks(r.owner)
	if err != nil || slices.ContainsFunc(list, func(d provider.Disk) bool { return d.ID == other.ID }) {
		r.Errorf("the list of one owner shows the disk of another: %+v, error %v", list, err)
	}
}

func checkDiskListEmptyMatch(r *run) {
	for _, match := range []map[string]string{nil, {}} {
		if list, err := r.listDisks(match); !errors.Is(err, provider.ErrInvalidArgument) {
			r.Errorf("ListDisks with an empty match returned %d disks, error %v", len(list), err)
		}
	}
}

// foreign makes a disk and a snapshot of somebody else's that have our tags.
func (r *run) foreign() Foreign {
	r.Helper()
	foreign, err := r.subject.Foreign(r.owner)
	if err != nil {
		r.Fatalf("Subject.Foreign: %v", err)
	}
	return foreign
}

func (r *run) removeForeign(f Foreign) {
	r.Helper()
	if err := f.Remove(); err != nil {
		r.Errorf("remove the disk of somebody else: %v", err)
	}
}

func checkDiskListForeign(r *run) {
	f := r.foreign()
	defer r.removeForeign(f)
	mine := r.mustDisk(r.newDisk())
	for range quietLists {
		r.eventually(func() error {
			list, err := r.listDisks(r.owner)
			if err == nil && (len(list) != 1 || list[0].ID != mine.ID) {
				err = fmt.Errorf("the list shows %+v, want %s alone, and not %s", list, mine.ID, f.DiskID)
			}
			return err
		})
	}
}

func checkDiskDelete(r *run) {
	made := r.mustDisk(r.newDisk())
	r.mustDeleteDisk(made.ID)
	r.checkNoDisk(made.ID)
	r.checkLeaks("after DeleteDisk")
}

func checkDiskDeleteAbsent(r *run) {
	made := r.mustDisk(r.newDisk())
	for _, id := range []string{absentID, made.ID} {
		for range repetitions {
			if err := r.deleteDisk(id); err != nil && (id != absentID || !errors.Is(err, provider.ErrInvalidArgument)) {
				r.Errorf("DeleteDisk(%q), again: %v", id, err)
			}
		}
	}
}

func checkDiskDeleteAttached(r *run) {
	disk, instance := r.attached()
	r.checkClass("DeleteDisk of a disk that is attached", r.deleteDisk(disk.ID), provider.ErrInUse)
	r.checkHas(instance.ID, disk.ID, "after DeleteDisk")
}

func checkDiskDeleteForeign(r *run) {
	f := r.foreign()
	defer r.removeForeign(f)
	r.checkClass("DeleteDisk of somebody else's", r.deleteDisk(f.DiskID), provider.ErrPermissionDenied)
	if got := r.mustGetDisk(f.DiskID); got.Key != "" {
		r.Errorf("disk %s, which CreateDisk did not make, has the key %q", f.DiskID, got.Key)
	}
}

func checkDiskDeleteOthers(r *run) {
	stays, goes := r.mustDisk(r.newDisk()), r.mustDisk(r.newDisk())
	r.mustDeleteDisk(goes.ID)
	r.checkNoDisk(goes.ID)
	r.mustGetDisk(stays.ID)
}

func checkDiskNoAccess(r *run) {
	made := r.mustDisk(r.newDisk())
	r.withoutAccess(func(why string, p provider.Provider) {
		controller := capabilityOf[provider.DiskController](r, p)
		r.wantRefusal("DeleteDisk", why, r.do("DeleteDisk", func(ctx context.Context) error { return controller.DeleteDisk(ctx, made.ID) }))
		_, err := r.getDiskBy(p, made.ID)
		r.wantRefusal("GetDisk", why, err)
		r.wantRefusal("ListDisks", why, r.do("ListDisks", func(ctx context.Context) error {
			_, err := controller.ListDisks(ctx, r.owner)
			return err
		}))
	})
	r.mustGetDisk(made.ID)
}

func checkDiskResize(r *run) {
	made := r.mustDisk(r.newDisk())
	r.mustResize(made.ID, 2*made.Bytes)
}

func checkDiskResizeLess(r *run) {
	made := r.mustDisk(r.newDisk())
	for _, bytes := range []int64{made.Bytes, made.Bytes - 1, 1} {
		got, err := r.resize(made.ID, bytes)
		if err != nil || got == nil || got.Bytes != made.Bytes {
			r.Errorf("ResizeDisk from %d to %d bytes returned %+v, error %v", made.Bytes, bytes, got, err)
		}
	}
	if got := r.mustGetDisk(made.ID).Bytes; got != made.Bytes {
		r.Errorf("disk %s has shrunk from %d to %d bytes", made.ID, made.Bytes, got)
	}
}

func checkDiskResizeAttached(r *run) {
	disk, instance := r.attached()
	r.mustResize(disk.ID, 2*disk.Bytes)
	r.checkHas(instance.ID, disk.ID, "after ResizeDisk")
}

func checkDiskResizeAbsent(r *run) {
	_, err := r.resize(absentID, r.subject.Disk.Bytes)
	r.checkClass("ResizeDisk of an id that does not exist", err, provider.ErrNotFound, provider.ErrInvalidArgument)
}

func checkDiskCopy(r *run) {
	source := r.mustDisk(r.newDisk())
	c := r.copyOf(source.ID, "")
	made := r.mustDisk(c)
	r.mustDeleteDisk(source.ID)
	r.checkSameID(made.ID, r.mustDisk(c).ID)
	if got := r.mustGetDisk(made.ID); got.Bytes < source.Bytes || got.FromDisk != source.ID {
		r.Errorf("the copy of disk %s of %d bytes is %+v", source.ID, source.Bytes, got)
	}
}

func checkDiskCopyAbsent(r *run) {
	c := r.newDisk()
	c.spec.FromDisk = absentID
	_, err := r.createDisk(c)
	r.checkClass("a copy of a disk that does not exist", err, provider.ErrNotFound, provider.ErrInvalidArgument)
}

func checkDiskCopyLess(r *run) {
	c := r.copyOf(r.mustDisk(r.newDisk()).ID, "")
	c.spec.Bytes = 1
	_, err := r.createDisk(c)
	r.checkClass("a copy that is less than the disk", err, provider.ErrInvalidArgument)
}

func checkDiskCopyContent(r *run) {
	source := r.mustDisk(r.newDisk())
	text := []byte("content of " + source.ID)
	r.write(source.ID, text)
	r.checkContentOf(r.mustDisk(r.copyOf(source.ID, "")).ID, text)
}

func (r *run) write(diskID string, text []byte) {
	r.Helper()
	if err := r.subject.WriteDisk(diskID, text); err != nil {
		r.Fatalf("Subject.WriteDisk(%q): %v", diskID, err)
	}
}

func (r *run) checkContentOf(diskID string, text []byte) {
	r.Helper()
	if got, err := r.subject.ReadDisk(diskID, len(text)); err != nil || string(got) != string(text) {
		r.Errorf("disk %s has the content %q, error %v; want %q", diskID, got, err, text)
	}
}
