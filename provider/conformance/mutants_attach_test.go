// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

// aroundAttach is around for attaching.
func aroundAttach(f brokenAttach) breakage {
	return func(b *broken) {
		attach := b.disk.attach
		b.disk.attach = func(ctx context.Context, diskID, instanceID string) (*provider.Attachment, error) {
			return f(b, ctx, diskID, instanceID, attach)
		}
	}
}

// changedSerial breaks the serial number.
func changedSerial(change func(b *broken, diskID, instanceID, serial string) string) breakage {
	return aroundAttach(func(b *broken, ctx context.Context, diskID, instanceID string, attach attacher) (*provider.Attachment, error) {
		a, err := attach(ctx, diskID, instanceID)
		if err == nil {
			a.Serial = change(b, diskID, instanceID, a.Serial)
		}
		return a, err
	})
}

// refusedAttach replaces the errors of attaching.
func refusedAttach(replace func(b *broken, diskID, instanceID string, err error) error) breakage {
	return aroundAttach(func(b *broken, ctx context.Context, diskID, instanceID string, attach attacher) (*provider.Attachment, error) {
		a, err := attach(ctx, diskID, instanceID)
		if err = replace(b, diskID, instanceID, err); err != nil {
			return nil, err
		}
		if a == nil {
			a = &provider.Attachment{Serial: diskID}
		}
		return a, nil
	})
}

// raced attaches so slowly that two calls meet, and reports whether they did.
func raced(b *broken, ctx context.Context, diskID, instanceID string, attach attacher) (*provider.Attachment, bool, error) {
	defer b.count("attaching "+diskID, -1)
	if b.count("attaching "+diskID, 1) > 1 {
		b.mark("raced for "+diskID, "yes")
	}
	if !cutShort(ctx) {
		<-time.After(busyTime)
	}
	a, err := attach(ctx, diskID, instanceID)
	return a, b.marked("raced for "+diskID) != "", err
}

// aroundDetach is around for detaching.
func aroundDetach(f func(b *broken, ctx context.Context, diskID, instanceID string, detach detacher) error) breakage {
	return func(b *broken) {
		detach := b.disk.detach
		b.disk.detach = func(ctx context.Context, diskID, instanceID string) error {
			return f(b, ctx, diskID, instanceID, detach)
		}
	}
}

var attachMutants = []mutant{
	{name: "the first disk has no serial number", breaks: changedSerial(func(b *broken, diskID, instanceID, serial string) string {
		if first := b.marked("first disk of " + instanceID); first == "" {
			b.mark("first disk of "+instanceID, diskID)
		}
		if b.marked("first disk of "+instanceID) == diskID {
			return ""
		}
		return serial
	}), fails: map[string]string{"attach": "no serial number"}},
	{name: "a logical unit has a name", breaks: changedSerial(func(_ *broken, diskID, _, _ string) string { return provider.SerialLUN + diskID }),
		fails: map[string]string{"attach": "not a logical unit number"}},
	{name: "the tenth call attaches again", breaks: changedSerial(func(b *broken, diskID, instanceID, serial string) string {
		if b.count("attached "+diskID+" by "+b.process, 1) == 10 {
			return serial + "-1"
		}
		return serial
	}), fails: map[string]string{"attach-repeated": "and then"}},
	{name: "serial numbers are a process's", breaks: changedSerial(func(b *broken, _, _, serial string) string { return serial + b.process }),
		fails: map[string]string{"attach-reopened": "and then"}},
	{name: "who comes at the same time has it too", breaks: aroundAttach(func(b *broken, ctx context.Context, diskID, instanceID string, attach attacher) (*provider.Attachment, error) {
		a, met, err := raced(b, ctx, diskID, instanceID, attach)
		if errors.Is(err, provider.ErrInUse) && met {
			return &provider.Attachment{Serial: diskID}, nil
		}
		return a, err
	}), fails: map[string]string{"attach-concurrent": "two instances at the same time"}},
	{name: "the second instance takes the disk", breaks: aroundAttach(func(b *broken, ctx context.Context, diskID, instanceID string, attach attacher) (*provider.Attachment, error) {
		a, met, err := raced(b, ctx, diskID, instanceID, attach)
		if errors.Is(err, provider.ErrInUse) && !met {
			b.Cloud.DetachDisk(ctx, diskID, b.there(diskID).InstanceID)
			return attach(ctx, diskID, instanceID)
		}
		return a, err
	}), fails: map[string]string{"attach-second": "returned no error"}},
	{name: "a disk that another has is a wrong request", breaks: refusedAttach(func(_ *broken, _, _ string, err error) error {
		if errors.Is(err, provider.ErrInUse) {
			return failure("the disk is busy", provider.ErrInvalidArgument)
		}
		return err
	}), fails: map[string]string{"attach-second": "the disk is busy", "attach-concurrent": "the disk is busy"}},
	{name: "an instance may come later", breaks: refusedAttach(func(_ *broken, _, instanceID string, err error) error {
		if errors.Is(err, provider.ErrNotFound) && instanceID == absentID {
			return failure("not yet", provider.ErrUnavailable)
		}
		return err
	}), fails: map[string]string{"attach-absent": "not yet"}},
	{name: "one serial number for all", breaks: changedSerial(func(*broken, string, string, string) string { return "QEMU_HARDDISK" }),
		fails: map[string]string{"attach-serials": "QEMU_HARDDISK"}},
	{name: "only what runs can have a disk", breaks: aroundAttach(func(b *broken, ctx context.Context, diskID, instanceID string, attach attacher) (*provider.Attachment, error) {
		if b.stopped(instanceID) {
			return nil, failure("the instance is off", provider.ErrUnavailable)
		}
		return attach(ctx, diskID, instanceID)
	}), fails: map[string]string{"attach-stopped": "the instance is off"}},
	{name: "disks are lost when it starts", breaks: func(b *broken) {
		on := b.powerOn
		b.powerOn = func(ctx context.Context, id string) error {
			if b.stopped(id) && b.marked("attached while off "+id) == "" {
				b.detachAll(id)
			}
			return on(ctx, id)
		}
		aroundAttach(func(b *broken, ctx context.Context, diskID, instanceID string, attach attacher) (*provider.Attachment, error) {
			if b.stopped(instanceID) {
				b.mark("attached while off "+instanceID, "yes")
			}
			return attach(ctx, diskID, instanceID)
		})(b)
	}, fails: map[string]string{"attach-power": "after PowerOn"}},
	{name: "no slot is a quota", breaks: refusedAttach(func(_ *broken, _, _ string, err error) error {
		if errors.Is(err, provider.ErrCapacity) {
			return failure("no slot", provider.ErrQuota)
		}
		return err
	}), fails: map[string]string{"attach-limit": "no slot"}},
	{name: "another zone may come nearer", breaks: refusedAttach(func(_ *broken, _, _ string, err error) error {
		if errors.Is(err, provider.ErrInvalidArgument) {
			return failure("too far", provider.ErrUnavailable)
		}
		return err
	}), fails: map[string]string{"attach-zone": "too far"}},
	{name: "an instance takes its disks with it", breaks: aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		had := b.disksOf(id)
		err := remove(ctx, id)
		for _, disk := range had {
			if err == nil {
				b.Cloud.DeleteDisk(ctx, disk)
			}
		}
		return err
	}), fails: map[string]string{"attach-delete-instance": "not found"}},
	{name: "an instance that is gone keeps its disks", breaks: all(aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		had := b.disksOf(id)
		err := remove(ctx, id)
		for _, disk := range had {
			b.mark("kept "+disk, id)
		}
		return err
	}), aroundAttach(func(b *broken, ctx context.Context, diskID, instanceID string, attach attacher) (*provider.Attachment, error) {
		if id := b.marked("kept " + diskID); id != "" {
			return nil, failure(fmt.Sprintf("instance %s has it", id), provider.ErrInUse)
		}
		return attach(ctx, diskID, instanceID)
	})), fails: map[string]string{"attach-delete-instance": "has it: in use"}},
	{name: "the first detaching does nothing", breaks: aroundDetach(func(b *broken, ctx context.Context, diskID, instanceID string, detach detacher) error {
		if b.there(diskID).InstanceID == instanceID && b.count("detachings of "+diskID, 1) == 1 {
			return nil
		}
		return detach(ctx, diskID, instanceID)
	}), fails: map[string]string{"detach": "after DetachDisk"}},
	{name: "detaching what is detached is an error", breaks: aroundDetach(func(b *broken, ctx context.Context, diskID, instanceID string, detach detacher) error {
		if d := b.there(diskID); d.ID != "" && d.InstanceID == "" && b.count("too many "+diskID, 1) == 8 {
			return failure("it is not attached", provider.ErrNotFound)
		}
		return detach(ctx, diskID, instanceID)
	}), fails: map[string]string{"detach-repeated": "it is not attached"}},
	{name: "detaching from nothing is an error", breaks: aroundDetach(func(_ *broken, ctx context.Context, diskID, instanceID string, detach detacher) error {
		if err := detach(ctx, diskID, instanceID); err != nil || diskID == absentID || instanceID != absentID {
			return err
		}
		return failure("no such instance", provider.ErrNotFound)
	}), fails: map[string]string{"detach-absent": "no such instance"}},
	{name: "detaches from whoever has it", breaks: aroundDetach(func(b *broken, ctx context.Context, diskID, instanceID string, detach detacher) error {
		if has := b.there(diskID).InstanceID; has != "" && instanceID != absentID {
			instanceID = has
		}
		return detach(ctx, diskID, instanceID)
	}), fails: map[string]string{"detach-other": "after DetachDisk from another"}},
	{name: "attaching that was cut short is given up", breaks: aroundAttach(func(_ *broken, ctx context.Context, diskID, instanceID string, attach attacher) (*provider.Attachment, error) {
		if cutShort(ctx) {
			return nil, failure("cut short", provider.ErrInvalidArgument)
		}
		return attach(ctx, diskID, instanceID)
	}), fails: map[string]string{"cancel-disk": "nobody retries"}},
}

// disksOf returns the ids of what an instance has.
func (b *broken) disksOf(instanceID string) (ids []string) {
	lines, _ := b.Leaks()
	for _, line := range lines {
		if line.Kind == fake.KindDataDisk && b.there(line.ID).InstanceID == instanceID {
			ids = append(ids, line.ID)
		}
	}
	return ids
}

func (b *broken) detachAll(instanceID string) {
	for _, id := range b.disksOf(instanceID) {
		b.Cloud.DetachDisk(context.Background(), id, instanceID)
	}
}
