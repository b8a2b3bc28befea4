// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"fmt"
	"time"
)

// DiskController makes disks that outlive instances, and attaches them. A storage driver
// needs it. A disk belongs to nobody's instance: DeleteInstance detaches every disk that
// was attached by AttachDisk, and MUST NOT delete one. An id that the cloud can never have
// given MAY be ErrInvalidArgument everywhere.
type DiskController interface {
	// CreateDisk makes the disk of a key and returns when it can be attached. The key
	// is as that of CreateInstance. Two calls with one key, also at the same time, from
	// another process, or after a lost reply, MUST give one disk. If there is one with
	// the key that differs from spec in zone, type or source, or has another size than
	// spec permits, it is ErrAlreadyExists.
	//
	// Errors: ErrInvalidArgument (type, zone, or size that the cloud does not have; the
	// message names it), ErrNotFound (snapshot or disk to copy), and those of
	// CreateInstance. After an error nothing is left, or the next call with the key goes on.
	CreateDisk(ctx context.Context, key string, spec DiskSpec) (*Disk, error)
	// GetDisk returns any disk of the account, also one that CreateDisk did not make. It
	// returns ErrNotFound only if the cloud has said that there is none, and for an
	// id that the cloud can never have given ErrNotFound or ErrInvalidArgument.
	GetDisk(ctx context.Context, diskID string) (*Disk, error)
	// ListDisks returns every disk whose tags include all of match, and none that
	// CreateDisk did not make. An empty match is ErrInvalidArgument. One that was made just now
	// MAY be missing for a while.
	ListDisks(ctx context.Context, match map[string]string) ([]Disk, error)
	// DeleteDisk removes a disk and what is on it. Deleting one that does not exist MUST
	// return nil. A disk that is attached is ErrInUse, and one that CreateDisk did not
	// make is ErrPermissionDenied: both MUST stay as they are. So do snapshots of the disk.
	DeleteDisk(ctx context.Context, diskID string) error

	// AttachDisk attaches a disk to an instance, which may be running or stopped, and
	// returns when the guest can see it. Repeating it MUST return the same. A disk is
	// attached to one instance: while another has it, it is ErrInUse. An instance
	// that can have no more disks is ErrCapacity, one in another zone
	// ErrInvalidArgument, a disk or an instance that does not exist ErrNotFound, and
	// an instance that is being made or deleted ErrUnavailable. PowerOff and PowerOn
	// keep attachments.
	AttachDisk(ctx context.Context, diskID, instanceID string) (*Attachment, error)
	// DetachDisk returns when the instance does not have the disk any more. That it
	// does not have it, or that one of them does not exist, MUST be nil. It MUST NOT
	// detach the disk from another instance. It does not ask the guest whether the
	// disk is in use.
	DetachDisk(ctx context.Context, diskID, instanceID string) error
	// ResizeDisk makes a disk at least so large and returns it, attached or not; the
	// guest sees the new size without a restart. A disk that is as large already
	// MUST stay as it is: disks never shrink. 0 or less bytes are ErrInvalidArgument, a
	// disk that does not exist is ErrNotFound.
	ResizeDisk(ctx context.Context, diskID string, bytes int64) (*Disk, error)
}

// DiskSnapshotter takes copies of disks as they are at one time. They outlive the disk.
type DiskSnapshotter interface {
	// CreateSnapshot begins the snapshot of a key, of a disk that is attached or not, and
	// returns when later writes to the disk are not in it. Two calls with one key MUST
	// give one snapshot; if that is one of another disk it is ErrAlreadyExists.
	CreateSnapshot(ctx context.Context, key, diskID string, tags map[string]string) (*Snapshot, error)
	// GetSnapshot and ListSnapshots are as GetDisk and ListDisks.
	GetSnapshot(ctx context.Context, snapshotID string) (*Snapshot, error)
	ListSnapshots(ctx context.Context, match map[string]string) ([]Snapshot, error)
	// DeleteSnapshot is as DeleteDisk. Disks that were made from it stay.
	DeleteSnapshot(ctx context.Context, snapshotID string) error
}

// DiskSpec says what a disk is to be.
type DiskSpec struct {
	// Name is for humans, and can be anything, as the podName of an instance.
	Name string
	// Bytes is the least size, and Limit, unless it is 0, the largest: clouds have units.
	// With a source 0 is the source's, and less than that is ErrInvalidArgument.
	Bytes, Limit int64
	// Type is the cloud's name of a kind of disk; empty is the provider's default.
	Type string
	// Zone is where it is to be; empty is the provider's default.
	Zone string
	// FromSnapshot and FromDisk are ids of what it is a copy of. At most one is set.
	FromSnapshot, FromDisk string
	// Tags are the owner tags; see InstanceTypeSpec.
	Tags map[string]string
}

// Check returns ErrInvalidArgument for a spec that no provider can take.
func (s *DiskSpec) Check() error {
	source := s.FromSnapshot != "" || s.FromDisk != ""
	switch {
	case s.FromSnapshot != "" && s.FromDisk != "":
		return fmt.Errorf("%w: a disk is a copy of snapshot %s or of disk %s, and not of both", ErrInvalidArgument, s.FromSnapshot, s.FromDisk)
	case s.Bytes < 0 || s.Limit < 0:
		return fmt.Errorf("%w: a size of a disk is negative: %d, limit %d", ErrInvalidArgument, s.Bytes, s.Limit)
	case s.Bytes == 0 && !source:
		return fmt.Errorf("%w: a disk of 0 bytes", ErrInvalidArgument)
	case s.Limit != 0 && s.Limit < s.Bytes:
		return fmt.Errorf("%w: a disk of at least %d and at most %d bytes", ErrInvalidArgument, s.Bytes, s.Limit)
	}
	return nil
}

// Fits reports whether a disk that has the key of the spec already is what the spec asks for.
// A type or a zone that the spec leaves to the provider fits.
func (s *DiskSpec) Fits(d *Disk) bool {
	return d.Bytes >= s.Bytes && (s.Limit == 0 || d.Bytes <= s.Limit) && (s.Type == "" || s.Type == d.Type) && (s.Zone == "" || s.Zone == d.Zone) &&
		s.FromSnapshot == d.FromSnapshot && s.FromDisk == d.FromDisk
}

// Disk is one that is there.
type Disk struct {
	// ID is the provider's own, unique while the disk exists.
	ID string
	// Key is the one it was made with; empty for a disk that CreateDisk did not make.
	Key string
	// Bytes is how large it is.
	Bytes int64
	Type  string
	// Zone is empty where instances of all zones can have the disk.
	Zone string
	// FromSnapshot and FromDisk are those of its spec, also when they do not exist any more.
	FromSnapshot, FromDisk string
	// InstanceID is the instance that has it; empty when none has.
	InstanceID string
	Tags       map[string]string
	Created    time.Time
}

// Attachment is how a guest knows a disk.
type Attachment struct {
	// Serial is the serial number that the guest reads of the disk: /sys/block/NAME/serial of
	// virtio and NVMe, page 0x80 of the vital product data of SCSI. It is unique among the
	// disks of the instance, and has 1 to 20 characters: virtio cuts it there. Of a cloud whose
	// disks have none it is SerialLUN and a logical unit number, and of a persistent disk of Google's its device name.
	// Of a disk with a world wide name it is [SerialOfWWN].
	Serial string
}

// SerialOfWWN returns the serial of a SCSI disk by its world wide name, which the guest reads as NAA designator in page 0x83
// of the vital product data: its last 20 digits. The digits before are those of a manufacturer and the beginning of the number
// of a storage system.
func SerialOfWWN(wwn string) string { return wwn[max(0, len(wwn)-20):] }

// SerialLUN begins the Serial of a disk without a serial number: azure-lun-3 is the data disk of an Azure VM that the
// guest sees at logical unit 3 of the controllers for data disks, or as namespace 5 of the NVMe controller of remote disks.
const SerialLUN = "azure-lun-"

// Snapshot is one that is there.
type Snapshot struct {
	ID, Key string
	// DiskID is the disk that it is of, also when that does not exist any more.
	DiskID string
	// Bytes is the size of a disk made from it, at least.
	Bytes int64
	// Ready reports whether a disk can be made from it.
	Ready   bool
	Tags    map[string]string
	Created time.Time
}
