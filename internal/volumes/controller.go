// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/outrigger/outrigger/provider"
)

// controller is the service that is there once in a cluster.
type controller struct {
	csi.UnimplementedControllerServer
	options   *Options
	disks     provider.DiskController
	snapshots provider.DiskSnapshotter // nil if the provider has none
}

// ControllerGetCapabilities implements [csi.ControllerServer]. There is no GET_CAPACITY: clouds do
// not say how much they have left.
func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	kinds := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
		csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if c.snapshots != nil {
		kinds = append(kinds, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS)
	}
	r := &csi.ControllerGetCapabilitiesResponse{}
	for _, k := range kinds {
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: k}},
		})
	}
	return r, nil
}

// get returns a disk; that the cloud cannot have given the id is [provider.ErrNotFound].
func (c *controller) get(ctx context.Context, id string) (*provider.Disk, error) {
	d, err := c.disks.GetDisk(ctx, id)
	if missing(err) {
		return nil, fmt.Errorf("%w: there is no disk %s: %v", provider.ErrNotFound, id, err)
	}
	return d, err
}

// DeleteVolume implements [csi.ControllerServer].
func (c *controller) DeleteVolume(ctx context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := c.disks.DeleteDisk(ctx, r.GetVolumeId()); err != nil && !missing(err) {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ValidateVolumeCapabilities implements [csi.ControllerServer].
func (c *controller) ValidateVolumeCapabilities(ctx context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if len(r.GetVolumeCapabilities()) == 0 {
		return nil, invalid("no volume_capabilities")
	}
	if _, err := c.get(ctx, r.GetVolumeId()); err != nil {
		return nil, err
	}
	err := checkCapabilities(r.GetVolumeCapabilities(), r.GetVolumeContext()[attributeEncrypted])
	if err == nil {
		_, err = parameters(r.GetParameters())
	}
	if err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(), Parameters: r.GetParameters(),
	}}, nil
}

// ListVolumes implements [csi.ControllerServer]: the disks of this cluster.
func (c *controller) ListVolumes(ctx context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	all, err := c.disks.ListDisks(ctx, c.owner())
	if err != nil {
		return nil, err
	}
	inVMs, err := c.options.Workloads.InVMs(ctx)
	if err != nil {
		return nil, err
	}
	page, next, err := cut(all, func(d provider.Disk) (int64, string) { return d.Created.UnixNano(), d.ID }, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	list := &csi.ListVolumesResponse{NextToken: next}
	for i := range page {
		d := &page[i]
		list.Entries = append(list.Entries, &csi.ListVolumesResponse_Entry{
			Volume: volumeOf(d, nil),
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: publishedAt(d, inVMs)},
		})
	}
	return list, nil
}

// ControllerGetVolume implements [csi.ControllerServer].
func (c *controller) ControllerGetVolume(ctx context.Context, r *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	d, err := c.get(ctx, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	inVMs, err := c.options.Workloads.InVMs(ctx)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: volumeOf(d, nil), Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: publishedAt(d, inVMs)},
	}, nil
}

// publishedAt returns the ids of the nodes that a disk is published at: for pods in VMs those that
// it was published at without being attached.
func publishedAt(d *provider.Disk, inVMs map[string][]string) []string {
	if nodes := inVMs[d.ID]; len(nodes) > 0 {
		return nodes
	}
	if d.InstanceID == "" {
		return nil
	}
	return []string{d.InstanceID}
}

// ControllerExpandVolume implements [csi.ControllerServer].
func (c *controller) ControllerExpandVolume(ctx context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	least, most, err := bounds(r.GetCapacityRange())
	if err == nil && least == 0 {
		err = invalid("no capacity_range.required_bytes")
	}
	if err != nil {
		return nil, err
	}
	d, err := c.get(ctx, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if d.Bytes < least {
		if d, err = c.disks.ResizeDisk(ctx, d.ID, least); err != nil {
			if errors.Is(err, provider.ErrInvalidArgument) {
				err = fmt.Errorf("%w: %w", errRange, err)
			}
			return nil, err
		}
	}
	if most > 0 && d.Bytes > most {
		return nil, fmt.Errorf("%w: disk %s has %d bytes and not at most %d: disks never shrink", errRange, d.ID, d.Bytes, most)
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: d.Bytes, NodeExpansionRequired: r.GetVolumeCapability().GetBlock() == nil}, nil
}
