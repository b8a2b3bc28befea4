// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"cmp"
	"os"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/outrigger/outrigger/internal/blockdevice"
	"github.com/outrigger/outrigger/internal/directvolume"
)

// record writes down that the disk belongs at the target path of a pod in a VM. The folder, or the device, comes
// last: the pod can only start with it.
func (n *node) record(r *csi.NodePublishVolumeRequest, pod *Pod) error {
	if singleWriter(r) {
		if err := n.onlyRecord(r); err != nil {
			return err
		}
	}
	options := mountOptions(r.GetVolumeCapability(), r.GetReadonly())
	metadata := map[string]string{directvolume.MetadataDisk: diskOf(r), directvolume.MetadataPodUID: r.GetVolumeContext()[sidecarPrefix+"pod.uid"]}
	if r.GetReadonly() {
		metadata[directvolume.MetadataReadOnly] = "true"
	}
	if pod.FSGroup != nil {
		metadata[directvolume.MetadataFSGroup] = strconv.FormatInt(*pod.FSGroup, 10)
		if pod.FSGroupChangePolicy != "" {
			metadata[directvolume.MetadataFSGroupChangePolicy] = pod.FSGroupChangePolicy
		}
	}
	kind := fileSystem(r.GetVolumeCapability())
	key, err := keyForGuest(r.GetVolumeId(), r.GetVolumeContext(), r.GetSecrets())
	if err != nil {
		return err
	}
	if key != "" {
		kind, metadata[directvolume.MetadataKey] = directvolume.FsLUKS, key
	}
	err = directvolume.Write(n.Records, r.GetTargetPath(), &directvolume.Info{
		VolumeType: directvolume.TypeBlock, Device: diskOf(r), FsType: kind, Metadata: metadata, Options: options,
	})
	if err != nil {
		return err
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		return n.publishStandIn(r)
	}
	return os.MkdirAll(r.GetTargetPath(), 0o750)
}

// diskOf returns the provider's id of a volume's disk.
func diskOf(r *csi.NodePublishVolumeRequest) string {
	return cmp.Or(r.GetPublishContext()[keyDisk], r.GetVolumeId())
}

// publishStandIn gives kubelet the block device that it insists on. Only its number is ever used: the shim
// knows the volume by it.
func (n *node) publishStandIn(r *csi.NodePublishVolumeRequest) error {
	there, err := n.mountAt(r.GetTargetPath())
	if err != nil || there != nil {
		return err
	}
	device, err := blockdevice.StandIn(n.Sys, n.Dev, r.GetTargetPath())
	if err != nil {
		return err
	}
	if err := makeTarget(r); err != nil {
		return err
	}
	return n.Mounts.Mount(device, r.GetTargetPath(), "", []string{"bind"})
}

// onlyRecord returns an error if the volume has a record of another path.
func (n *node) onlyRecord(r *csi.NodePublishVolumeRequest) error {
	targets, err := directvolume.Targets(n.Records)
	if err != nil {
		return err
	}
	for _, target := range targets {
		other, err := n.recordAt(target)
		if err != nil {
			continue // another driver's: ours are written whole
		}
		if other != nil && other.Device == diskOf(r) && target != r.GetTargetPath() {
			return usedElsewhere(r, target)
		}
	}
	return nil
}
