// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/mount-utils"

	"github.com/outrigger/outrigger/internal/blockdevice"
	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/provider"
)

// NodeOptions are what the node service has to know of its node.
type NodeOptions struct {
	// ID is the id of the node's instance, or the node's name if it is not an instance.
	ID string
	// Zone is the node's; empty where the cloud has none.
	Zone string
	// MaxVolumes is how many volumes ordinary pods of the node can have; 0 means unknown.
	MaxVolumes int64
	// Records is the folder with the records of volumes of pods in VMs.
	Records string
	// Mounts are those of the node.
	Mounts *mount.SafeFormatAndMount
	// Sys and Dev are where the disks of the node are: /sys and /dev.
	Sys, Dev string
}

// node is the service that is on every node.
type node struct {
	csi.UnimplementedNodeServer
	NodeOptions
	workloads Workloads
	log       *slog.Logger
}

// NodeGetCapabilities implements [csi.NodeServer].
func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, k := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_VOLUME_CONDITION,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: k}},
		})
	}
	return r, nil
}

// NodeGetInfo implements [csi.NodeServer].
func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	zone := n.Zone
	if zone == "" {
		zone = anyZone
	}
	return &csi.NodeGetInfoResponse{NodeId: n.ID, MaxVolumesPerNode: n.MaxVolumes, AccessibleTopology: topology(zone)[0]}, nil
}

// placementOf returns what ControllerPublishVolume has decided.
func placementOf(publishContext map[string]string) (Placement, error) {
	switch p := Placement(publishContext[keyPlacement]); p {
	case OnNode, InVM:
		return p, nil
	default:
		return "", invalid("publish_context has %s=%q: want what ControllerPublishVolume returned", keyPlacement, p)
	}
}

// NodePublishVolume implements [csi.NodeServer].
func (n *node) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := checkCapability(r.GetVolumeCapability(), r.GetVolumeContext()[attributeEncrypted]); err != nil {
		return nil, err
	}
	placement, err := placementOf(r.GetPublishContext())
	if err != nil {
		return nil, err
	}
	pod, err := n.podOf(ctx, r, placement)
	if err != nil {
		return nil, err
	}
	publish := n.bind
	if placement == InVM {
		publish = func(r *csi.NodePublishVolumeRequest) error { return n.record(r, pod) }
	}
	if err := publish(r); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// podOf returns the pod that a volume is published for. A volume that was attached for pods of the
// other kind would be an empty folder to it, which loses what it writes: the attachment stays the
// same while pods follow each other on a node.
func (n *node) podOf(ctx context.Context, r *csi.NodePublishVolumeRequest, placement Placement) (*Pod, error) {
	of := r.GetVolumeContext()
	pod, err := n.workloads.Pod(ctx, of[sidecarPrefix+"pod.namespace"], of[sidecarPrefix+"pod.name"], of[sidecarPrefix+"pod.uid"])
	if err != nil {
		return nil, err
	}
	if pod.Placement != placement {
		was, is := "ordinary pods", "runs in a VM"
		if placement == InVM {
			was, is = "pods in VMs", "does not run in one"
		}
		return nil, fmt.Errorf("%w: the volume was attached for %s and this pod %s: delete the pod, and create it when the VolumeAttachment of %s is gone", errPrecondition, was, is, r.GetVolumeId())
	}
	return pod, nil
}

// bind mounts a staged volume, or its device, at the target path.
func (n *node) bind(r *csi.NodePublishVolumeRequest) error {
	readOnly := r.GetReadonly()
	source, options := r.GetStagingTargetPath(), []string{"bind"}
	if readOnly {
		options = append(options, "ro")
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		device, err := n.device(r.GetPublishContext()[keySerial])
		if err != nil {
			return err
		}
		source = device
	} else if err := n.checkStaged(r); err != nil {
		return err
	}
	there, err := n.mountAt(r.GetTargetPath())
	switch {
	case err != nil:
		return err
	case there != nil && (!readOnly || slices.Contains(there.Opts, "ro")):
		return nil
	case there != nil: // killed before it was read-only
		if err := n.Mounts.Unmount(r.GetTargetPath()); err != nil {
			return err
		}
	}
	if err := makeTarget(r); err != nil {
		return err
	}
	return n.Mounts.Mount(source, r.GetTargetPath(), "", options)
}

// checkStaged returns an error if the volume is not mounted at the staging path, or is published
// elsewhere though only one pod may have it.
func (n *node) checkStaged(r *csi.NodePublishVolumeRequest) error {
	staged, err := n.mountAt(r.GetStagingTargetPath())
	if err != nil {
		return err
	}
	if staged == nil {
		return fmt.Errorf("%w: volume %s is not staged at %q", errPrecondition, r.GetVolumeId(), r.GetStagingTargetPath())
	}
	all, err := n.Mounts.List()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Device == staged.Device && m.Path != staged.Path && m.Path != r.GetTargetPath() && singleWriter(r) {
			return usedElsewhere(r, m.Path)
		}
	}
	return nil
}

func singleWriter(r *csi.NodePublishVolumeRequest) bool {
	return r.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
}

func usedElsewhere(r *csi.NodePublishVolumeRequest, path string) error {
	return fmt.Errorf("%w: volume %s is for one pod, and published at %s already", errPrecondition, r.GetVolumeId(), path)
}

// makeTarget makes what is mounted over: a folder, or a file for a device.
func makeTarget(r *csi.NodePublishVolumeRequest) error {
	if r.GetVolumeCapability().GetBlock() == nil {
		return os.MkdirAll(r.GetTargetPath(), 0o750)
	}
	f, err := os.OpenFile(r.GetTargetPath(), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// NodeUnpublishVolume implements [csi.NodeServer].
func (n *node) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	record, err := n.recordAt(r.GetTargetPath())
	if err == nil && record != nil {
		err = removeFolders(r.GetTargetPath())
	}
	if err != nil {
		return nil, err
	}
	if err := mount.CleanupMountPoint(r.GetTargetPath(), n.Mounts, true); err != nil {
		return nil, err
	}
	if record != nil && record.Raw() {
		if err := blockdevice.RemoveStandIn(n.Sys, n.Dev, r.GetTargetPath()); err != nil {
			return nil, err
		}
	}
	if err := directvolume.Remove(n.Records, r.GetTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// removeFolders removes the empty folders below a path: of a volume in a VM the node has only those that
// kubelet has made for subPaths.
func removeFolders(path string) error {
	var folders []string
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && name != path {
			folders = append(folders, name)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range slices.Backward(folders) { // the deepest first
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// mountAt returns what is mounted at a path, last if there is more; nil for nothing.
func (n *node) mountAt(path string) (*mount.MountPoint, error) {
	if path == "" {
		return nil, invalid("no path")
	}
	all, err := n.Mounts.List()
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Backward(all) {
		if m.Path == path {
			return &m, nil
		}
	}
	return nil, nil
}

// recordAt returns the record of a path; nil if it is not that of a volume in a VM.
func (n *node) recordAt(path string) (*directvolume.Info, error) {
	r, err := directvolume.Read(n.Records, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return r, err
}

// notPublished returns the error for a path without a volume.
func notPublished(volumeID, path string) error {
	return fmt.Errorf("%w: volume %s is not at %s", provider.ErrNotFound, volumeID, path)
}
