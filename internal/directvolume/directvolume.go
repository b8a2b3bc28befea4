// SPDX-License-Identifier: Apache-2.0

// Package directvolume has the records of volumes that a VM gets as disks, while the node mounts
// nothing. They are those of Kata's direct-assigned volumes, so that Kata's own runtime reads them
// as well: below a folder, one folder for each path at which a pod expects its volume, with the
// file mountInfo.json.
package directvolume

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/wholefile"
)

// Driver is the name of the CSI driver whose records these are.
const Driver = "csi.outrigger.dev"

// Root is where Kata's runtime looks for records.
const Root = "/run/kata-containers/shared/direct-volumes"

// recordName is the record in the folder of a path. Other files there are named after the sandboxes
// that have the volume.
const recordName = "mountInfo.json"

// TypeBlock is the [Info.VolumeType] of a disk.
const TypeBlock = "block"

// FsLUKS is blkid's name of LUKS: an ext4 file system is in it. An adaptor, or a guest, that cannot encrypt refuses it by name.
const FsLUKS = "crypto_LUKS"

// Keys of [Info.Metadata]. The first two are Kata's.
const (
	// MetadataFSGroup is the number of the group that the files of the volume get.
	MetadataFSGroup = "fsGroup"
	// MetadataFSGroupChangePolicy is "Always", or "OnRootMismatch": only if the volume's root has
	// another group.
	MetadataFSGroupChangePolicy = "fsGroupChangePolicy"
	// MetadataDisk is the provider's id of the disk. Records without it are of other drivers.
	MetadataDisk = Driver + "/disk"
	// MetadataPodUID is the pod that the volume was published for; nobody else may have the disk.
	MetadataPodUID = Driver + "/pod-uid"
	// MetadataKey is the key of a disk whose FsType is FsLUKS, in base64; or a sealed Secret as it is, which is not base64: an older guest
	// does not take it for a key.
	MetadataKey = Driver + "/key"
	// MetadataReadOnly is "true" if the pod must not write.
	MetadataReadOnly = Driver + "/read-only"
)

// Info is a record, under the names that Kata gives its fields.
type Info struct {
	VolumeType string `json:"volume-type"`
	// Device is the provider's id of the disk.
	Device string `json:"device"`
	// FsType is the file system that an empty disk gets, and any other must have; empty for a raw block device, and FsLUKS
	// for one that is encrypted.
	FsType   string            `json:"fstype"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Options are those of the mount.
	Options []string `json:"options,omitempty"`
}

// Raw reports whether containers have the disk itself, and no file system on it.
func (i *Info) Raw() bool { return i.FsType == "" }

// Folder returns where below root the record of a target path is, and the files of the sandboxes.
func Folder(root, target string) string {
	return filepath.Join(root, base64.URLEncoding.EncodeToString([]byte(target)))
}

// Write makes or replaces the record of the volume that a pod is to have at target, the path that
// kubelet gives the driver. After a crash it is as before or whole.
func Write(root, target string, info *Info) error {
	data, err := json.Marshal(info)
	if err != nil {
		return err
	}
	dir := Folder(root, target)
	if err := os.MkdirAll(dir, 0o700); errors.Is(err, unix.ENAMETOOLONG) {
		return fmt.Errorf("a volume of a pod in a VM cannot be at %s: Kata's record of it has a name that is too long; give its PersistentVolume a shorter one", target)
	} else if err != nil {
		return err
	}
	// A file beside the record would be taken for that of a sandbox, so leftovers of writers
	// that were killed go away first.
	if err := removeLeftovers(dir); err != nil {
		return err
	}
	return wholefile.Replace(filepath.Join(dir, recordName), data, 0o600)
}

func removeLeftovers(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+recordName) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// Read returns the record of a target path, or an error that is [fs.ErrNotExist].
func Read(root, target string) (*Info, error) {
	path := filepath.Join(Folder(root, target), recordName)
	data, err := os.ReadFile(path)
	if errors.Is(err, unix.ENAMETOOLONG) {
		return nil, fs.ErrNotExist // it cannot have been written
	}
	if err != nil {
		return nil, err
	}
	info := &Info{}
	if err := json.Unmarshal(data, info); err != nil {
		return nil, fmt.Errorf("%s, the record of %s: %w", path, target, err)
	}
	return info, nil
}

// Remove removes the record of a target path; that there is none is nil.
func Remove(root, target string) error {
	if err := os.RemoveAll(Folder(root, target)); !errors.Is(err, unix.ENAMETOOLONG) {
		return err
	}
	return nil
}

// Targets returns the target paths that have a record.
func Targets(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var targets []string
	for _, e := range entries {
		target, err := base64.URLEncoding.DecodeString(e.Name())
		if _, missing := os.Stat(filepath.Join(root, e.Name(), recordName)); err == nil && missing == nil {
			targets = append(targets, string(target))
		}
	}
	return targets, nil
}
