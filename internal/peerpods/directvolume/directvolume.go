// SPDX-License-Identifier: Apache-2.0

// Package directvolume is how a volume gets from its CSI driver on the node into the VM of
// its pod. The driver mounts nothing and writes a record, that of Kata's direct-assigned
// volumes (docs/design/direct-blk-device-assignment.md of Kata Containers). The adaptor attaches
// the disks of a pod's records to its VM and writes what the guest knows each by
// beside the agent's socket, where the relay reads it.
package directvolume

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
)

// Driver is the name of our CSI driver.
const Driver = "csi.outrigger.dev"

// Root is where Kata looks for the records.
const Root = "/run/kata-containers/shared/direct-volumes"

const (
	recordName   = "mountInfo.json"
	attachedName = "volumes.json"
)

// Keys of a record's metadata. The first is Kata's.
const (
	MetadataFSGroup = "fsGroup"
	// MetadataDisk is the provider's id of the disk. Records without it are of other drivers.
	MetadataDisk = Driver + "/disk"
)

// Info is a record, under the names that Kata gives its fields.
type Info struct {
	VolumeType string            `json:"volume-type"`
	Device     string            `json:"device"`
	FsType     string            `json:"fstype"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Options    []string          `json:"options,omitempty"`
}

// Disk returns the id of the disk; empty for a record of another driver.
func (i *Info) Disk() string { return i.Metadata[MetadataDisk] }

func folder(root, target string) string {
	return filepath.Join(root, base64.URLEncoding.EncodeToString([]byte(target)))
}

// Write writes the record of a volume that the pod is to have at target, the path that
// kubelet gives the driver.
func Write(root, target string, info *Info) error {
	dir := folder(root, target)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("record of the volume at %s: %w", target, err)
	}
	return statefile.Write(filepath.Join(dir, recordName), info)
}

// Read returns the record of a target; fs.ErrNotExist if there is none.
func Read(root, target string) (*Info, error) {
	info := &Info{}
	return info, statefile.Read(filepath.Join(folder(root, target), recordName), info)
}

// Remove removes the record of a target, if there is one.
func Remove(root, target string) error { return os.RemoveAll(folder(root, target)) }

// OfPod returns the records of a pod's volumes that have a disk of ours, by target.
func OfPod(root, uid string) (map[string]*Info, error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	list := map[string]*Info{}
	for _, e := range entries {
		target, err := base64.URLEncoding.DecodeString(e.Name())
		if err != nil || uid == "" || podOf(string(target)) != uid {
			continue
		}
		info, err := Read(root, string(target))
		if errors.Is(err, fs.ErrNotExist) {
			continue // being written, or another driver's
		}
		if err != nil {
			return nil, err
		}
		if info.Disk() != "" {
			list[string(target)] = info
		}
	}
	return list, nil
}

// podOf returns the UID of the pod in a kubelet's path of a CSI volume,
// <root>/pods/<uid>/volumes/kubernetes.io~csi/<name>/mount; empty for other paths.
func podOf(target string) string {
	parts := strings.Split(filepath.Clean(target), "/")
	n := len(parts)
	if n < 6 || parts[n-6] != "pods" || parts[n-4] != "volumes" || parts[n-3] != "kubernetes.io~csi" || parts[n-1] != "mount" {
		return ""
	}
	return parts[n-5]
}

// In the guest. A storage of the driver GuestDriver in the agent's CreateContainer has the
// serial number of a disk as its source; the forwarder mounts it below GuestFolder and takes
// the storage out, so that no agent needs to know the driver.
const (
	GuestDriver = "outrigger-disk"
	GuestFolder = "/run/outrigger/volumes"
)

// Attached is a volume whose disk the VM has.
type Attached struct {
	// Target is where kubelet believes it to be, and what the container's mount names.
	Target string `json:"target"`
	// Serial is what the guest knows the disk by.
	Serial  string   `json:"serial"`
	FsType  string   `json:"fstype,omitempty"`
	Options []string `json:"options,omitempty"`
	// FSGroup is the pod's fsGroup; empty without one.
	FSGroup string `json:"fsGroup,omitempty"`
}

// WriteAttached writes a sandbox's list into its folder.
func WriteAttached(sandbox string, list []Attached) error {
	return statefile.Write(filepath.Join(sandbox, attachedName), list)
}

// ReadAttached returns the list in a sandbox's folder; none if there is no file.
func ReadAttached(sandbox string) (list []Attached, err error) {
	err = statefile.Read(filepath.Join(sandbox, attachedName), &list)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return list, err
}
