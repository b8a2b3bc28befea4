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

	"github.com/outrigger/outrigger/internal/blockdevice"
)

// NodeStageVolume implements [csi.NodeServer]: it mounts the disk. Of a volume for pods in VMs, and
// of a block device, there is nothing to stage.
func (n *node) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := errors.Join(required("staging_target_path", r.GetStagingTargetPath()), checkCapability(r.GetVolumeCapability(), r.GetVolumeContext()[attributeEncrypted])); err != nil {
		return nil, err
	}
	placement, err := placementOf(r.GetPublishContext())
	if err != nil {
		return nil, err
	}
	if placement == OnNode {
		if err := n.stage(ctx, r); err != nil {
			return nil, err
		}
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (n *node) stage(ctx context.Context, r *csi.NodeStageVolumeRequest) error {
	device, err := n.device(r.GetPublishContext()[keySerial])
	if err != nil || r.GetVolumeCapability().GetBlock() != nil {
		return err
	}
	e, err := encryptionHere(r.GetVolumeId(), r.GetVolumeContext(), r.GetSecrets())
	if err != nil {
		return err
	}
	path := r.GetStagingTargetPath()
	there, err := n.mountAt(path)
	if err != nil {
		return err
	}
	expected := device
	if e != nil {
		if expected, err = blockdevice.Mapped(e.Name); err != nil {
			return err
		}
	}
	switch {
	case there != nil && there.Device == expected:
		return nil
	case there != nil:
		return fmt.Errorf("%w: %s is mounted at %s, and not %s of volume %s", errPrecondition, there.Device, path, device, r.GetVolumeId())
	}
	options := mountOptions(r.GetVolumeCapability(), false)
	readOnly := slices.Contains(options, "ro")
	disk := device
	switch {
	case !readOnly:
		// It goes on when kubelet has given up: it waits for the volume when it asks again.
		device, err = blockdevice.Prepare(context.WithoutCancel(ctx), disk, e, n.log.Info)
	case e != nil:
		device, err = blockdevice.OpenEncrypted(e, disk)
	}
	if blockdevice.Unusable(err) {
		return fmt.Errorf("%w: volume %s, disk %s: %w", errPrecondition, r.GetVolumeId(), disk, err)
	} else if err != nil {
		return fmt.Errorf("volume %s, disk %s: %w", r.GetVolumeId(), disk, err)
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return err
	}
	if err := n.Mounts.Mount(device, path, fileSystem(r.GetVolumeCapability()), options); err != nil {
		return fmt.Errorf("volume %s: %w", r.GetVolumeId(), err)
	}
	if readOnly {
		return nil
	}
	return n.grow(device, path) // a copy may be larger than its source
}

// grow makes a mounted file system as large as its disk.
func (n *node) grow(device, path string) error {
	if err := blockdevice.Rescan(n.Sys, device); err != nil {
		return fmt.Errorf("ask %s for its size: %w", device, err)
	}
	if blocks, err := blockdevice.Blocks(device); err != nil || blocks == 0 {
		return err
	}
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
	if err := blockdevice.Unmap(blockdevice.MappingOf(r.GetVolumeId())); err != nil {
		return nil, fmt.Errorf("close the encrypted disk of volume %s: %w", r.GetVolumeId(), err)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}
