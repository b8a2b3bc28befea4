// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

var attachChecks = []Check{
	{"attach", "AttachDisk attaches a disk and returns the serial number that the guest reads, or its logical unit number.", []need{needsDisks}, checkAttach},
	{"attach-repeated", "Repeating AttachDisk returns the same.", []need{needsDisks}, checkAttachRepeated},
	{"attach-reopened", "AttachDisk returns the same when another process repeats it.", []need{needsDisks, needsReopen}, checkAttachReopened},
	{"attach-concurrent", "A disk is attached to one instance, also when several ask at the same time.", []need{needsDisks}, checkAttachConcurrent},
	{"attach-second", "Attaching a disk that another instance has is ErrInUse, and it stays there.", []need{needsDisks}, checkAttachSecond},
	{"attach-absent", "Attaching is ErrNotFound when the disk or the instance does not exist.", []need{needsDisks}, checkAttachAbsent},
	{"attach-serials", "A serial number is unique among the disks of an instance.", []need{needsDisks}, checkAttachSerials},
	{"attach-stopped", "A disk can be attached to an instance that is stopped.", []need{needsDisks, needsPower}, checkAttachStopped},
	{"attach-power", "A disk stays attached when the instance is stopped and started.", []need{needsDisks, needsPower}, checkAttachPower},
	{"attach-limit", "Attaching to an instance that can have no more disks is ErrCapacity.", []need{needsDisks, needsDiskLimit}, checkAttachLimit},
	{"attach-zone", "Attaching a disk of another zone is ErrInvalidArgument.", []need{needsDisks, needsOtherZone}, checkAttachZone},
	{"attach-delete-instance", "DeleteInstance detaches disks, and deletes none.", []need{needsDisks}, checkAttachDeleteInstance},
	{"detach", "DetachDisk takes a disk from an instance, and then another can have it.", []need{needsDisks}, checkDetach},
	{"detach-repeated", "Detaching a disk that the instance does not have returns nil.", []need{needsDisks}, checkDetachRepeated},
	{"detach-absent", "Detaching returns nil when the disk or the instance does not exist.", []need{needsDisks}, checkDetachAbsent},
	{"detach-other", "DetachDisk does not detach a disk from another instance.", []need{needsDisks}, checkDetachOther},
	{"cancel-disk", "Calls about disks that were cut short can be repeated.", []need{needsDisks}, checkCancelDisk},
}

func checkAttach(r *run) {
	instance, disk := r.mustCreate(newKey()), r.mustDisk(r.newDisk())
	serial := r.mustAttach(disk.ID, instance.ID)
	if serial == "" {
		r.Errorf("AttachDisk returned no serial number, by which the guest finds the disk")
	}
	if lun, ok := strings.CutPrefix(serial, provider.SerialLUN); ok {
		if n, err := strconv.ParseUint(lun, 10, 16); err != nil || strconv.FormatUint(n, 10) != lun {
			r.Errorf("AttachDisk returned %q, in which %q is not a logical unit number", serial, lun)
		}
	}
	r.checkHas(instance.ID, disk.ID, "after AttachDisk")
}

func checkAttachRepeated(r *run) {
	instance, disk := r.mustCreate(newKey()), r.mustDisk(r.newDisk())
	r.checkSerial(disk.ID, instance.ID, r.mustAttach(disk.ID, instance.ID), r.provider)
}

func checkAttachReopened(r *run) {
	instance, disk := r.mustCreate(newKey()), r.mustDisk(r.newDisk())
	serial := r.mustAttach(disk.ID, instance.ID)
	r.checkSerial(disk.ID, instance.ID, serial, r.reopen())
}

// checkSerial attaches again and compares.
func (r *run) checkSerial(diskID, instanceID, serial string, p provider.Provider) {
	r.Helper()
	for range repetitions - 1 {
		if again := r.mustAttachBy(p, diskID, instanceID); again != serial {
			r.Errorf("disk %s has the serial number %q and then %q", diskID, serial, again)
		}
	}
}

// checkAttachConcurrent accepts that nobody gets the disk if all may try again.
func checkAttachConcurrent(r *run) {
	disk := r.mustDisk(r.newDisk())
	controller := power[provider.DiskController](r)
	won := make(chan string, 2)
	var calls []func(context.Context) error
	for _, instance := range []*provider.Instance{r.mustCreate(newKey()), r.mustCreate(newKey())} {
		calls = append(calls, func(ctx context.Context) error {
			_, err := controller.AttachDisk(ctx, disk.ID, instance.ID)
			if err == nil {
				won <- instance.ID
			}
			return err
		})
	}
	for _, err := range r.together("AttachDisk", calls) {
		r.checkRetryable("AttachDisk at the same time", err)
	}
	close(won)
	var winners []string
	for id := range won {
		winners = append(winners, id)
	}
	if len(winners) > 1 {
		r.Fatalf("disk %s was attached to two instances at the same time: %v", disk.ID, winners)
	}
	for _, id := range winners {
		r.checkHas(id, disk.ID, "after two calls at the same time")
	}
}

func checkAttachSecond(r *run) {
	disk, first := r.attached()
	second := r.mustCreate(newKey())
	_, err := r.attach(disk.ID, second.ID)
	r.checkClass("AttachDisk of a disk that another instance has", err, provider.ErrInUse)
	r.checkHas(first.ID, disk.ID, "after AttachDisk to another instance")
}

func checkAttachAbsent(r *run) {
	instance, disk := r.mustCreate(newKey()), r.mustDisk(r.newDisk())
	_, err := r.attach(absentID, instance.ID)
	r.checkClass("AttachDisk of a disk that does not exist", err, provider.ErrNotFound, provider.ErrInvalidArgument)
	_, err = r.attach(disk.ID, absentID)
	r.checkClass("AttachDisk to an instance that does not exist", err, provider.ErrNotFound, provider.ErrInvalidArgument)
}

func checkAttachSerials(r *run) {
	instance := r.mustCreate(newKey())
	seen := map[string]string{}
	for range 2 {
		disk := r.mustDisk(r.newDisk())
		serial := r.mustAttach(disk.ID, instance.ID)
		if other := seen[serial]; other != "" {
			r.Errorf("disks %s and %s of one instance have the serial number %q", other, disk.ID, serial)
		}
		seen[serial] = disk.ID
	}
}

func checkAttachStopped(r *run) {
	instance, disk := r.mustCreate(newKey()), r.mustDisk(r.newDisk())
	r.mustPower(r.powerOff(), instance.ID)
	r.mustAttach(disk.ID, instance.ID)
	r.mustPower(r.powerOn(), instance.ID)
	r.checkHas(instance.ID, disk.ID, "after AttachDisk and PowerOn")
}

func checkAttachPower(r *run) {
	disk, instance := r.attached()
	for _, step := range []powerStep{r.powerOff(), r.powerOn()} {
		r.mustPower(step, instance.ID)
		r.checkHas(instance.ID, disk.ID, "after "+step.name)
	}
}

func checkAttachLimit(r *run) {
	instance := r.mustCreate(newKey())
	for range r.subject.DisksPerInstance {
		r.mustAttach(r.mustDisk(r.newDisk()).ID, instance.ID)
	}
	_, err := r.attach(r.mustDisk(r.newDisk()).ID, instance.ID)
	r.checkClass("AttachDisk to an instance that can have no more disks", err, provider.ErrCapacity)
}

func checkAttachZone(r *run) {
	instance, c := r.mustCreate(newKey()), r.newDisk()
	c.spec.Zone = r.subject.OtherZone
	_, err := r.attach(r.mustDisk(c).ID, instance.ID)
	r.checkClass("AttachDisk of a disk of another zone", err, provider.ErrInvalidArgument)
}

func checkAttachDeleteInstance(r *run) {
	disk, first := r.attached()
	r.mustDelete(first.ID)
	second := r.mustCreate(newKey())
	r.eventually(func() error { // the cloud may have accepted the deletion only
		_, err := r.attach(disk.ID, second.ID)
		if err != nil && !provider.Retryable(err) {
			r.Fatalf("AttachDisk after the instance that had the disk was deleted: %v", err)
		}
		return err
	})
	r.checkHas(second.ID, disk.ID, "after DeleteInstance and AttachDisk")
}

func checkDetach(r *run) {
	disk, first := r.attached()
	second := r.mustCreate(newKey())
	r.mustDetach(disk.ID, first.ID)
	r.checkHas("", disk.ID, "after DetachDisk")
	if _, err := r.attach(disk.ID, second.ID); err != nil {
		r.Errorf("AttachDisk after DetachDisk from another instance: %v", err)
	}
}

func checkDetachRepeated(r *run) {
	disk, instance := r.attached()
	for range repetitions {
		r.mustDetach(disk.ID, instance.ID)
	}
}

func checkDetachAbsent(r *run) {
	disk, instance := r.attached()
	for _, ids := range [][2]string{{absentID, instance.ID}, {disk.ID, absentID}, {absentID, absentID}} {
		if err := r.detach(ids[0], ids[1]); err != nil && !errors.Is(err, provider.ErrInvalidArgument) {
			r.Errorf("DetachDisk(%q, %q): %v", ids[0], ids[1], err)
		}
	}
}

func checkDetachOther(r *run) {
	disk, first := r.attached()
	second := r.mustCreate(newKey())
	r.mustDetach(disk.ID, second.ID)
	r.checkHas(first.ID, disk.ID, "after DetachDisk from another instance")
}

func checkCancelDisk(r *run) {
	instance, disk := r.mustCreate(newKey()), r.mustDisk(r.newDisk())
	controller := power[provider.DiskController](r)
	r.cutDisks("AttachDisk", func(ctx context.Context) error {
		_, err := controller.AttachDisk(ctx, disk.ID, instance.ID)
		return err
	})
	r.mustAttach(disk.ID, instance.ID)
	r.cutDisks("ResizeDisk", func(ctx context.Context) error {
		_, err := controller.ResizeDisk(ctx, disk.ID, 2*disk.Bytes)
		return err
	})
	r.mustResize(disk.ID, 2*disk.Bytes)
	r.cutDisks("DetachDisk", func(ctx context.Context) error { return controller.DetachDisk(ctx, disk.ID, instance.ID) })
	r.mustDetach(disk.ID, instance.ID)
	r.cutDisks("DeleteDisk", func(ctx context.Context) error { return controller.DeleteDisk(ctx, disk.ID) })
	r.mustDeleteDisk(disk.ID)
	r.checkNoDisk(disk.ID)
}
