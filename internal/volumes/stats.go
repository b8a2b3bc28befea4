// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

// NodeExpandVolume implements [csi.NodeServer]. In a VM the guest sees that a disk has grown, and
// grows its file system.
func (n *node) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	record, err := n.recordAt(r.GetVolumePath())
	if err == nil && record == nil {
		err = n.expand(r)
	}
	if err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
}

func (n *node) expand(r *csi.NodeExpandVolumeRequest) error {
	there, err := n.mountAt(r.GetVolumePath())
	if err != nil {
		return err
	}
	block := r.GetVolumeCapability().GetBlock() != nil || isDevice(r.GetVolumePath())
	switch {
	case there == nil && !block:
		return notPublished(r.GetVolumeId(), r.GetVolumePath())
	case block:
		return nil // it has grown already
	}
	return n.grow(there.Device, r.GetVolumePath())
}

func isDevice(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeDevice != 0
}

// NodeGetVolumeStats implements [csi.NodeServer].
func (n *node) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	record, err := n.recordAt(r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if record != nil {
		return nil, errInVM
	}
	if isDevice(r.GetVolumePath()) {
		return deviceStats(r.GetVolumePath())
	}
	there, err := n.mountAt(r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if there == nil {
		return nil, notPublished(r.GetVolumeId(), r.GetVolumePath())
	}
	return fileSystemStats(r.GetVolumePath())
}

// deviceStats returns the size of a block device.
func deviceStats(path string) (*csi.NodeGetVolumeStatsResponse, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeStatsResponse{
		Usage:           []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: size}},
		VolumeCondition: &csi.VolumeCondition{Message: "the device is there"},
	}, nil
}

// fileSystemStats returns how full a file system is. One whose disk does not answer has a condition
// and no figures.
func fileSystemStats(path string) (*csi.NodeGetVolumeStatsResponse, error) {
	var s unix.Statfs_t
	err := unix.Statfs(path, &s)
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.EUCLEAN) {
		return &csi.NodeGetVolumeStatsResponse{VolumeCondition: &csi.VolumeCondition{Abnormal: true, Message: fmt.Sprintf("the file system cannot be read: %v", err)}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("statfs %s: %w", path, err)
	}
	size := s.Bsize
	return &csi.NodeGetVolumeStatsResponse{
		Usage: []*csi.VolumeUsage{
			{Unit: csi.VolumeUsage_BYTES, Total: int64(s.Blocks) * size, Available: int64(s.Bavail) * size, Used: int64(s.Blocks-s.Bfree) * size},
			{Unit: csi.VolumeUsage_INODES, Total: int64(s.Files), Available: int64(s.Ffree), Used: int64(s.Files - s.Ffree)},
		},
		VolumeCondition: &csi.VolumeCondition{Message: "the file system is mounted"},
	}, nil
}
