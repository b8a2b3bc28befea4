// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/outrigger/outrigger/provider"
)

func (d *Driver) wrap() *wrapping {
	w := &wrapping{Wrapped: d.options.Wrapped, Driver: d, ours: map[string]handler{}}
	if d.controller != nil {
		w.ours["/csi.v1.Controller/ControllerPublishVolume"] = decide(w, w.publish)
		w.ours["/csi.v1.Controller/ControllerUnpublishVolume"] = decide(w, w.unpublish)
		w.ours["/csi.v1.Controller/ListVolumes"] = decide(w, w.list)
	}
	if d.node != nil {
		w.ours["/csi.v1.Node/NodeStageVolume"] = decide(w, w.stage)
		w.ours["/csi.v1.Node/NodePublishVolume"] = decide(w, w.nodePublish)
		w.ours["/csi.v1.Node/NodeUnpublishVolume"] = decide(w, recorded(w, d.node.NodeUnpublishVolume, (*csi.NodeUnpublishVolumeRequest).GetTargetPath))
		w.ours["/csi.v1.Node/NodeExpandVolume"] = decide(w, recorded(w, d.node.NodeExpandVolume, (*csi.NodeExpandVolumeRequest).GetVolumePath))
		w.ours["/csi.v1.Node/NodeGetVolumeStats"] = decide(w, recorded(w, d.node.NodeGetVolumeStats, (*csi.NodeGetVolumeStatsRequest).GetVolumePath))
	}
	return w
}

// publish decides whose a disk is. A volume that no PersistentVolume of the driver names is one of
// a plugin in Kubernetes itself, or of a pod's own: the pods that have those are the node's.
func (w *wrapping) publish(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (any, error) {
	placement, err := w.options.Workloads.Placement(ctx, r.GetVolumeId(), r.GetNodeId())
	if errors.Is(err, errNoVolume) {
		placement, err = OnNode, nil
	}
	if err != nil {
		return nil, err
	}
	if placement == InVM {
		return w.publishToVM(ctx, r)
	}
	holder, _, err := w.holder(ctx, r.GetVolumeId())
	if errors.Is(err, provider.ErrNotFound) {
		return nil, nil // the driver says what is wrong
	}
	if err == nil && holder == elsewhere {
		// Drivers may take a disk from an instance that they do not know.
		err = fmt.Errorf("%w: a VM that is not a Node has disk %s: wait until the pod that runs there is gone", provider.ErrInUse, r.GetVolumeId())
	}
	return nil, err
}

// holding is who has a disk.
type holding int

const (
	nobody holding = iota
	aNode
	elsewhere
)

// holder returns who has the disk of a volume.
func (w *wrapping) holder(ctx context.Context, volumeID string) (holding, *provider.Disk, error) {
	d, err := w.controller.get(ctx, volumeID)
	if err != nil || d.InstanceID == "" {
		return nobody, d, err
	}
	node, err := w.options.Workloads.IsNode(ctx, d.InstanceID)
	if node {
		return aNode, d, err
	}
	return elsewhere, d, err
}

// publishToVM leaves the disk to the VM when it is proven that the wrapped driver has it at no node.
// What that may have begun for an ordinary pod that is gone it undoes itself.
func (w *wrapping) publishToVM(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (any, error) {
	if err := checkForVM(r); err != nil {
		return nil, err
	}
	was, err := w.options.Workloads.Attached(ctx, r.GetVolumeId(), r.GetNodeId())
	if err != nil {
		return nil, err
	}
	if was == "" {
		undo := &csi.ControllerUnpublishVolumeRequest{VolumeId: r.GetVolumeId(), NodeId: r.GetNodeId(), Secrets: r.GetSecrets()}
		if _, err := csi.NewControllerClient(w.Conn).ControllerUnpublishVolume(outgoing(ctx), undo); err != nil {
			return nil, err
		}
	}
	holder, d, err := w.holder(ctx, r.GetVolumeId())
	if err == nil && (was == OnNode || holder == aNode) {
		err = fmt.Errorf("%w: disk %s is still attached to a node, for an ordinary pod that had it: it is for pods in VMs when it is detached", errPrecondition, d.ID)
	}
	if err != nil {
		return nil, err
	}
	answer := published(InVM, "")
	answer.PublishContext[keyDisk] = d.ID
	return answer, nil
}

// notInGuest are the attributes of volumes by which drivers format or use part of a disk, in lower
// case. A guest does neither.
var notInGuest = []string{
	"blocksize", "bytesperinode", "data-cache-mode", "data-cache-size", "ext4bigalloc", "ext4clustersize", "ext4encryptionsupport", "inodesize", "mkfsoptions", "numberofinodes", "partition",
}

var errBlockInVM = fmt.Errorf("%w: raw block volumes of a wrapped driver for pods in VMs are not there yet: use volumeMode Filesystem", errPrecondition)

// checkForVM returns an error for what a volume of a pod in a VM cannot have.
func checkForVM(r *csi.ControllerPublishVolumeRequest) error {
	if err := checkPublish(r); err != nil {
		return err
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		return errBlockInVM
	}
	for name, value := range r.GetVolumeContext() {
		switch key := strings.ToLower(name); {
		case value == "":
		case key == "fstype" && !slices.Contains(fileSystems, value):
			return invalid("file system %q: in a VM it is one of %s", value, strings.Join(fileSystems, ", "))
		case slices.Contains(notInGuest, key):
			return invalid("volume attribute %s=%q: a VM takes the whole disk, and formats it with the defaults of ext4: use a StorageClass without %s for pods in VMs", name, value, name)
		}
	}
	return nil
}

// unpublish has nothing to detach of a volume that is on record as one of pods in VMs.
func (w *wrapping) unpublish(ctx context.Context, r *csi.ControllerUnpublishVolumeRequest) (any, error) {
	was, err := w.options.Workloads.Attached(ctx, r.GetVolumeId(), r.GetNodeId())
	if was != InVM || err != nil {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// list adds the nodes that volumes are published at for pods in VMs, where the driver says that of its
// own: the attacher would publish them again each minute.
func (w *wrapping) list(ctx context.Context, r *csi.ListVolumesRequest) (any, error) {
	inVMs, err := w.options.Workloads.InVMs(ctx)
	if len(inVMs) == 0 || err != nil {
		return nil, err
	}
	list, err := csi.NewControllerClient(w.Conn).ListVolumes(outgoing(ctx), r)
	for _, e := range list.GetEntries() {
		if nodes := inVMs[e.GetVolume().GetVolumeId()]; len(nodes) > 0 && e.GetStatus() != nil {
			e.Status.PublishedNodeIds = nodes
		}
	}
	return list, err
}

func ofVM(publishContext map[string]string) bool { return publishContext[keyPlacement] == string(InVM) }

func (w *wrapping) stage(ctx context.Context, r *csi.NodeStageVolumeRequest) (any, error) {
	switch {
	case r.GetVolumeContext()[attributeEncrypted] != "": // the driver would not know it
		return nil, invalid("volume %s has the attribute %s: volumes of other drivers are encrypted by their own parameters", r.GetVolumeId(), attributeEncrypted)
	case !ofVM(r.GetPublishContext()):
		return nil, nil
	case len(r.GetSecrets()) > 0:
		return nil, invalid("secrets for the node to stage volume %s with: a VM gets none: use a StorageClass without them for pods in VMs", r.GetVolumeId())
	}
	return w.node.NodeStageVolume(ctx, r)
}

// nodePublish refuses an ordinary pod's attachment for a pod in a VM, if kubelet says whose it is.
func (w *wrapping) nodePublish(ctx context.Context, r *csi.NodePublishVolumeRequest) (any, error) {
	if ofVM(r.GetPublishContext()) {
		return w.node.NodePublishVolume(ctx, r)
	}
	if r.GetVolumeContext()[sidecarPrefix+"pod.uid"] == "" {
		return nil, nil
	}
	_, err := w.node.podOf(ctx, r, OnNode)
	return nil, err
}

// recorded makes do answer for paths that have a record of ours. Nothing is staged for a pod in a
// VM, and of a path without anything drivers have to say that it is unstaged.
func recorded[Q, R any](w *wrapping, do func(context.Context, Q) (R, error), path func(Q) string) func(context.Context, Q) (any, error) {
	return func(ctx context.Context, r Q) (any, error) {
		if record, err := w.node.recordAt(path(r)); record == nil || record.Disk() == "" || err != nil {
			return nil, err
		}
		return do(ctx, r)
	}
}
