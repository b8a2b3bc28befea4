// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/outrigger/outrigger/provider"
)

// Keys of the publish context, which the node gets.
const (
	keyPlacement = "outrigger.dev/placement"
	keySerial    = "outrigger.dev/serial"
	// keyDisk is the provider's id of the disk, where the volume's id is another driver's.
	keyDisk = "outrigger.dev/disk"
)

// ControllerPublishVolume implements [csi.ControllerServer]. A volume for pods in VMs is not
// attached: their VM is not there yet, and is not a node.
func (c *controller) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := checkPublish(r); err != nil {
		return nil, err
	}
	d, err := c.get(ctx, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	placement, err := c.options.Workloads.Placement(ctx, d.ID, r.GetNodeId())
	if err != nil {
		return nil, err
	}
	if placement == InVM {
		return c.publishToVM(ctx, d, r)
	}
	attachment, err := c.disks.AttachDisk(ctx, d.ID, r.GetNodeId())
	if err != nil {
		return nil, c.explainNode(ctx, r.GetNodeId(), err)
	}
	if attachment == nil || attachment.Serial == "" {
		return nil, fmt.Errorf("%w: the provider does not say by which serial number the node finds disk %s", provider.ErrUnknown, d.ID)
	}
	return published(OnNode, attachment.Serial), nil
}

func checkPublish(r *csi.ControllerPublishVolumeRequest) error {
	if err := checkCapability(r.GetVolumeCapability(), r.GetVolumeContext()[attributeEncrypted]); err != nil {
		return err
	}
	if r.GetReadonly() {
		return invalid("readonly: disks are attached for writing, and mounted read-only where a pod asks for that")
	}
	return nil
}

func (c *controller) publishToVM(ctx context.Context, d *provider.Disk, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if d.InstanceID == r.GetNodeId() {
		if err := c.takeBack(ctx, d); err != nil {
			return nil, err
		}
	}
	return published(InVM, ""), nil
}

// takeBack detaches a disk from the node to which it was attached for an ordinary pod. If that is on
// record, the node may have it mounted still. If it is not, that pod was deleted before, and its
// VolumeAttachment is that of the pod in a VM now: nobody else would ever detach the disk. One that
// this driver did not make may have been attached by somebody else.
func (c *controller) takeBack(ctx context.Context, d *provider.Disk) error {
	recorded, err := c.options.Workloads.Attached(ctx, d.ID, d.InstanceID)
	if err != nil {
		return err
	}
	if recorded != "" || d.Key == "" {
		return fmt.Errorf("%w: disk %s is still attached to node %s, for an ordinary pod that had it: it is for pods in VMs when it is detached", errPrecondition, d.ID, d.InstanceID)
	}
	return c.disks.DetachDisk(ctx, d.ID, d.InstanceID)
}

func published(p Placement, serial string) *csi.ControllerPublishVolumeResponse {
	values := map[string]string{keyPlacement: string(p)}
	if serial != "" {
		values[keySerial] = serial
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: values}
}

// explainNode says of a failed attachment that the node is not an instance, if that is so.
func (c *controller) explainNode(ctx context.Context, nodeID string, err error) error {
	getter, ok := provider.As[provider.Getter](c.options.Provider)
	if !ok || !missing(err) {
		return err
	}
	if _, lookup := getter.GetInstance(ctx, nodeID); !missing(lookup) {
		return err
	}
	return fmt.Errorf("%w: node %s is not an instance of the provider, so that only pods in VMs can have volumes there: %v", provider.ErrNotFound, nodeID, err)
}

// ControllerUnpublishVolume implements [csi.ControllerServer]. Of a volume of pods in VMs nothing is
// detached: that is up to the end of the VM. The attachment may be under way without being seen yet,
// so the cloud is asked in any case.
func (c *controller) ControllerUnpublishVolume(ctx context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	err := c.disks.DetachDisk(ctx, r.GetVolumeId(), r.GetNodeId())
	if missing(err) {
		err = c.confirmDetached(ctx, r.GetVolumeId(), r.GetNodeId(), err)
	}
	if err != nil {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// confirmDetached returns nil if the node does not have the disk: the id of a node that is not an
// instance may be one that the cloud refuses.
func (c *controller) confirmDetached(ctx context.Context, volumeID, nodeID string, refused error) error {
	d, err := c.get(ctx, volumeID)
	switch {
	case errors.Is(err, provider.ErrNotFound):
		return nil
	case err != nil:
		return err
	case d.InstanceID == nodeID:
		return refused
	}
	return nil
}
