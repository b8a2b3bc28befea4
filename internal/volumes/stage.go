// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/mount-utils"
)

// NodeStageVolume implements [csi.NodeServer]: it mounts the disk. Of a volume for pods in VMs, and
// of a block device, there is nothing to stage.
func (n *node) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := errors.Join(required("staging_target_path", r.GetStagingTargetPath()), checkCapability(r.GetVolumeCapability())); err != nil {
		return nil, err
	}
	placement, err := placementOf(r.GetPublishContext())
	if err != nil {
		return nil, err
	}
	if placement == OnNode {
		if err := n.stage(r); err != nil {
			return nil, err
		}
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (n *node) stage(r *csi.NodeStageVolumeRequest) error {
	device, err := n.device(r.GetPublishContext()[keySerial])
	if err != nil || r.GetVolumeCapability().GetBlock() != nil {
		return err
	}
	path := r.GetStagingTargetPath()
	there, err := n.mountAt(path)
	switch {
	case err != nil:
		return err
	case there != nil && there.Device == device:
		return nil
	case there != nil:
		return fmt.Errorf("%w: %s is mounted at %s, and not %s of volume %s", errPrecondition, there.Device, path, device, r.GetVolumeId())
	}
	want := fileSystem(r.GetVolumeCapability())
	if err := n.checkContent(device, want); err != nil {
		return fmt.Errorf("volume %s: %w", r.GetVolumeId(), err)
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return err
	}
	options := mountOptions(r.GetVolumeCapability(), false)
	if err := n.Mounts.FormatAndMount(device, path, want, options); err != nil {
		return fmt.Errorf("volume %s: %w", r.GetVolumeId(), err)
	}
	if slices.Contains(options, "ro") {
		return nil
	}
	return n.grow(device, path) // a copy may be larger than its source
}

// checkContent returns an error if a disk has anything but the file system. Only a disk that is
// proven empty is formatted: not to find a file system proves nothing.
func (n *node) checkContent(device, want string) error {
	found, err := n.Mounts.GetDiskFormat(device)
	switch {
	case err != nil:
		return fmt.Errorf("look what is on %s: %w", device, err)
	case found == want:
		return nil
	case found != "":
		return fmt.Errorf("%w: %s has %s and the StorageClass or PersistentVolume asks for %s: it is never formatted", errPrecondition, device, found, want)
	}
	empty, err := isEmpty(device)
	if err == nil && !empty {
		err = fmt.Errorf("%w: %s has data that is not a known file system: it is never formatted: use volumeMode Block, or erase it (blkdiscard, or dd of zeros)", errPrecondition, device)
	}
	return err
}

// grow makes a mounted file system as large as its disk.
func (n *node) grow(device, path string) error {
	if _, err := mount.NewResizeFs(n.Mounts.Exec).Resize(device, path); err != nil {
		return fmt.Errorf("grow the file system of %s at %s: %w", device, path, err)
	}
	return nil
}

// NodeUnstageVolume implements [csi.NodeServer].
func (n *node) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := required("staging_target_path", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := mount.CleanupMountPoint(r.GetStagingTargetPath(), n.Mounts, true); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}
