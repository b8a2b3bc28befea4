// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/disks"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// AttachDisk implements provider.DiskController.
func (p *Provider) AttachDisk(ctx context.Context, diskID, instanceID string) (made *provider.Attachment, err error) {
	defer explain(&err, "attach disk %s to instance %s", diskID, instanceID)
	at, ok := parsePlace(instanceID)
	if !ok {
		return nil, errNoInstance(instanceID)
	}
	err = p.wait.Until(ctx, func() (bool, error) {
		v, err := p.getDisk(ctx, diskID)
		if err != nil {
			return false, err
		}
		vm, err := p.instanceDisks(ctx, at)
		if err == nil && vm == nil {
			err = errNoInstance(instanceID)
		}
		if err != nil {
			return false, err
		}
		made, err = p.attachStep(ctx, v, at, vm)
		return made != nil, err
	})
	return made, err
}

func errNoInstance(id string) error {
	return fmt.Errorf("%w: no instance %.130q", provider.ErrNotFound, id)
}

// instanceDisks returns an instance's state and disks, also of one that is not ours: nodes have disks too. It returns
// nil for what does not exist.
func (p *Provider) instanceDisks(ctx context.Context, at location) (*instance, error) {
	vm := &instance{}
	err := p.api.get(ctx, instancePath(at), url.Values{"fields": {"status,disks(source,deviceName)"}}, vm)
	if failure.HasStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	return vm, err
}

// attached returns what the instance says of a disk; nil if nothing.
func (i *instance) attached(at location) *attachedDisk {
	n := slices.IndexFunc(i.Disks, func(d attachedDisk) bool { return zoneAndName(d.Source) == at.String() })
	if n < 0 {
		return nil
	}
	return &i.Disks[n]
}

// longestSerial is the longest that the contract has.
const longestSerial = 20

// attachStep returns the attachment if the instance has the disk, and nil after it has brought that nearer.
func (p *Provider) attachStep(ctx context.Context, v *volume, at location, vm *instance) (*provider.Attachment, error) {
	has := vm.attached(v.location())
	switch {
	case has != nil && len(has.Device) > longestSerial:
		return nil, fmt.Errorf("%w: somebody has attached it as device %.63s: names have at most %d characters here, so detach it first", provider.ErrInvalidArgument, has.Device, longestSerial)
	case has != nil:
		return &provider.Attachment{Serial: has.Device}, nil
	case len(v.Users) > 0 && zoneAndName(v.Users[0]) != at.String(): // first: it does not go by itself, as a state does
		return nil, fmt.Errorf("%w: instance %s has it", provider.ErrInUse, zoneAndName(v.Users[0]))
	case base(v.Zone) != at.zone:
		return nil, fmt.Errorf("%w: the disk is in zone %s, and the instance in zone %s", provider.ErrInvalidArgument, base(v.Zone), at.zone)
	case vm.Status == "STAGING" || len(v.Users) > 0 || !v.ready():
		return nil, nil
	case vm.Status != "RUNNING" && !vm.stopped():
		return nil, fmt.Errorf("%w: the instance has the state %s", provider.ErrUnavailable, vm.Status)
	}
	body := attachedDisk{Source: diskPath(v.location()), Device: deviceName(v), Type: "PERSISTENT", Mode: "READ_WRITE"}
	return nil, p.changeDisks(ctx, at, "attachDisk", requestID(), body)
}

// deviceName returns by what name a guest finds a disk: it is ours to choose, and the same in every process.
func deviceName(v *volume) string {
	return "pd-" + volumeHash(v.Zone, v.Name)[:longestSerial-len("pd-")]
}

// changeDisks returns when the cloud has done it, or something else was under way.
func (p *Provider) changeDisks(ctx context.Context, at location, verb string, query url.Values, body any) error {
	var op operation
	err := p.api.send(ctx, http.MethodPost, instancePath(at)+"/"+verb, query, body, &op)
	if err == nil {
		err = p.finish(ctx, at.zone, &op)
	}
	switch {
	case busy(err) || failure.HasCode(err, "resourceInUseByAnotherResource") || op.failedWith("RESOURCE_NOT_READY", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"):
		return nil // who has it is seen with the next look
	case failure.HasCode(err, "limitExceeded") || op.failedWith("LIMIT_EXCEEDED") || err != nil && strings.Contains(err.Error(), "disks count"):
		return fmt.Errorf("%w: the instance can have no more disks: %v", provider.ErrCapacity, err) //nolint:errorlint // its class is not this one's
	}
	return err
}

// failedWith reports whether an operation has failed with one of these codes.
func (o *operation) failedWith(codes ...string) bool {
	return o.Error != nil && len(o.Error.Errors) > 0 && slices.Contains(codes, o.Error.Errors[0].Code)
}

// DetachDisk implements provider.DiskController.
func (p *Provider) DetachDisk(ctx context.Context, diskID, instanceID string) (err error) {
	defer explain(&err, "detach disk %s from instance %s", diskID, instanceID)
	disk, known := parsePlace(diskID)
	at, ok := parsePlace(instanceID)
	if !known || !ok {
		return nil // nothing has such an id
	}
	var refused error
	return p.wait.Until(ctx, func() (bool, error) {
		vm, err := p.instanceDisks(ctx, at)
		if err != nil || vm == nil {
			return true, err
		}
		has := vm.attached(disk)
		switch {
		case has == nil:
			return true, nil
		case refused != nil:
			return false, refused
		}
		query := requestID()
		query.Set("deviceName", has.Device)
		err = p.changeDisks(ctx, at, "detachDisk", query, nil)
		if errors.Is(err, provider.ErrNotFound) || errors.Is(err, provider.ErrInvalidArgument) {
			refused, err = err, nil // unless another process, or the end of the instance, has let it go
		}
		return false, err
	})
}

// ResizeDisk implements provider.DiskController. A guest that has the disk looks at its size itself.
func (p *Provider) ResizeDisk(ctx context.Context, diskID string, bytes int64) (grown *provider.Disk, err error) {
	defer explain(&err, "resize disk %s", diskID)
	size, err := disks.GiB(bytes, 0, 1, maxGiB)
	if err != nil {
		return nil, err
	}
	var v *volume
	var refused error
	err = p.wait.Until(ctx, func() (bool, error) {
		if v, err = p.getDisk(ctx, diskID); err != nil || v.bytes() >= bytes {
			return true, err
		}
		if refused != nil {
			return false, refused
		}
		var op operation
		err := p.api.send(ctx, http.MethodPost, diskPath(v.location())+"/resize", requestID(), map[string]string{"sizeGb": strconv.FormatInt(size, 10)}, &op)
		if busy(err) {
			return false, nil
		}
		if err == nil {
			err = p.finish(ctx, base(v.Zone), &op)
		}
		if errors.Is(err, provider.ErrInvalidArgument) {
			refused, err = err, nil // unless another call has just made it larger
		}
		return false, err
	})
	if err != nil {
		return nil, err
	}
	return v.disk(), nil
}
