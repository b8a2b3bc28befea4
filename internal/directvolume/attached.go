// SPDX-License-Identifier: Apache-2.0

package directvolume

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
)

// attachedName is the list in the folder of a sandbox, beside the agent's socket.
const attachedName = "volumes.json"

// In the guest. A storage of the driver GuestDriver in the agent's CreateContainer has the
// serial number of a disk as its source; the forwarder mounts it below GuestFolder and takes
// the storage out, so that no agent needs to know the driver.
const (
	GuestDriver = "outrigger-disk"
	GuestFolder = "/run/outrigger/volumes"
	// GuestKey begins the driver option of a GuestDriver storage of the type FsLUKS that has the key, as [MetadataKey].
	GuestKey = "key="
	// A storage of GuestPartDriver is a part of such a volume, for one container: its source is where the volume
	// is in the guest, and its option where in that the part is. The forwarder mounts it below GuestParts, in
	// the folder of the container. A driver of its own, since an older forwarder leaves it to the agent, which
	// refuses it by name.
	GuestPartDriver = "outrigger-subpath"
	GuestParts      = "/run/outrigger/parts"
	// A storage of GuestRawDriver is a disk whose device a container has at the mount point, which is that of one of
	// the OCI configuration's devices; its option says what the container may do (cgroup-v1 devices: r, w, m). Our
	// shim gives it the target on the node as its source, and the relay the serial number.
	GuestRawDriver = "outrigger-block-device"
)

// Disk returns the id of the disk; empty for a record of another driver.
func (i *Info) Disk() string { return i.Metadata[MetadataDisk] }

// OfPod returns the records of a pod's volumes that have a disk of ours, by target.
func OfPod(root, uid string) (map[string]*Info, error) {
	targets, err := Targets(root)
	if err != nil || uid == "" {
		return nil, err
	}
	list := map[string]*Info{}
	for _, target := range targets {
		// As kubelet has them: pods/UID/volumes/..., and of block devices volumeDevices/publish/NAME/UID.
		if !strings.Contains(target, "/pods/"+uid+"/") && filepath.Base(target) != uid {
			continue
		}
		info, err := Read(root, target)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed just now
		case err != nil:
			return nil, err
		case info.Disk() != "" && info.Metadata[MetadataPodUID] == uid:
			list[target] = info
		}
	}
	return list, nil
}

// RawAt returns the target of the raw block volume for which a block device of the node stands; empty if that stands
// for none.
func RawAt(root string, major, minor uint32) (string, error) {
	targets, err := Targets(root)
	for _, target := range targets {
		info, err := Read(root, target)
		var st unix.Stat_t
		if err == nil && info.Disk() != "" && info.Raw() && unix.Stat(target, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev == unix.Mkdev(major, minor) {
			return target, nil
		}
	}
	return "", err
}

// Attached is a volume whose disk the VM has.
type Attached struct {
	// Target is where kubelet believes it to be, and what the container's mount names.
	Target string `json:"target"`
	// Serial is what the guest knows the disk by.
	Serial  string   `json:"serial"`
	FsType  string   `json:"fstype,omitempty"`
	Options []string `json:"options,omitempty"`
	// Key is that of an encrypted disk, as [MetadataKey].
	Key string `json:"key,omitempty"`
	// FSGroup and FSGroupChangePolicy are the pod's; empty without.
	FSGroup             string `json:"fsGroup,omitempty"`
	FSGroupChangePolicy string `json:"fsGroupChangePolicy,omitempty"`
}

// SubPaths returns where kubelet has the subPaths of the volume, with a slash at the end:
// <root>/pods/<uid>/volume-subpaths/<name>/ beside <root>/pods/<uid>/volumes/<plugin>/<name>/mount.
func (a *Attached) SubPaths() string {
	volume := filepath.Dir(a.Target)
	return filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(volume))), "volume-subpaths", filepath.Base(volume)) + "/"
}

// Within returns where in the volume a path of the node is: "." is the volume itself, and empty is elsewhere.
func (a *Attached) Within(path string) string {
	within, err := filepath.Rel(a.Target, path)
	if err != nil || !filepath.IsLocal(within) {
		return ""
	}
	return within
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
