// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// modes are the access modes of a disk that one instance has at a time.
var modes = []csi.VolumeCapability_AccessMode_Mode{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
}

// fileSystems are those that both node and guest can make, check and grow.
var fileSystems = []string{"ext4"}

// checkCapabilities returns an error unless there are capabilities and a volume can have all, which may be encrypted.
func checkCapabilities(all []*csi.VolumeCapability, encrypted string) error {
	if len(all) == 0 {
		return invalid("no volume_capabilities")
	}
	for _, c := range all {
		if err := checkCapability(c, encrypted); err != nil {
			return err
		}
	}
	return nil
}

func checkCapability(c *csi.VolumeCapability, encrypted string) error {
	switch {
	case c == nil:
		return invalid("no volume_capability")
	case c.GetMount() == nil && c.GetBlock() == nil:
		return invalid("volume_capability has no access_type: want mount or block")
	case !slices.Contains(modes, c.GetAccessMode().GetMode()):
		return invalid("access mode %s: a disk is attached to one node or VM at a time: use ReadWriteOnce or ReadWriteOncePod", c.GetAccessMode().GetMode())
	}
	if name := c.GetMount().GetFsType(); name != "" && !slices.Contains(fileSystems, name) {
		return invalid("file system %q: want one of %s", name, strings.Join(fileSystems, ", "))
	}
	yes, err := isEncrypted(encrypted)
	if yes && c.GetBlock() != nil {
		return invalid("volumeMode Block with encryption: an encrypted volume has a file system; the pod can encrypt a device itself")
	}
	return err
}

// fileSystem returns the file system that is asked for; empty for a block device.
func fileSystem(c *csi.VolumeCapability) string {
	switch {
	case c.GetBlock() != nil:
		return ""
	case c.GetMount().GetFsType() == "":
		return fileSystems[0]
	}
	return c.GetMount().GetFsType()
}

// mountOptions returns those of the StorageClass and, if nothing may be written, "ro".
func mountOptions(c *csi.VolumeCapability, readOnly bool) []string {
	options := slices.Clone(c.GetMount().GetMountFlags())
	if readOnly || c.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY {
		options = append(options, "ro")
	}
	return options
}

// required returns an error for the first field of a request that is empty.
func required(fields ...string) error {
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] == "" {
			return invalid("no %s", fields[i])
		}
	}
	return nil
}

// bounds returns the range of sizes that is asked for.
func bounds(r *csi.CapacityRange) (least, most int64, err error) {
	least, most = r.GetRequiredBytes(), r.GetLimitBytes()
	if least < 0 || most < 0 || most > 0 && most < least {
		return 0, 0, invalid("capacity_range: at least %d and at most %d bytes", least, most)
	}
	return least, most, nil
}
