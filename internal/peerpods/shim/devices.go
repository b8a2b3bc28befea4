// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"fmt"

	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// placeDevices returns the container's devices, all of which stand for disks of the VM, with the storages that say
// which. Their numbers are still the node's.
func placeDevices(records string, in *oci.Linux) (devices []*agent.LinuxDevice, storages []*agent.Storage, err error) {
	if in == nil {
		return nil, nil, nil
	}
	for _, d := range in.Devices {
		target := ""
		if d.Type == "b" {
			if target, err = directvolume.RawAt(records, uint32(d.Major), uint32(d.Minor)); err != nil {
				return nil, nil, err
			}
		}
		if target == "" {
			return nil, nil, fmt.Errorf("the container wants device %s of the node, which a pod in a VM cannot use; "+
				"for a privileged container set privileged_without_host_devices = true for this runtime in containerd's configuration", d.Path)
		}
		device := &agent.LinuxDevice{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor, FileMode: 0o600}
		if d.FileMode != nil {
			device.FileMode = uint32(d.FileMode.Perm())
		}
		if d.UID != nil && d.GID != nil {
			device.UID, device.GID = *d.UID, *d.GID
		}
		devices = append(devices, device)
		storages = append(storages, &agent.Storage{Driver: directvolume.GuestRawDriver, Source: target, MountPoint: d.Path, Options: []string{accessTo(in.Resources, d)}})
	}
	return devices, storages, nil
}

// accessTo returns what a container may do with a device that is its own: containerd has a rule for each.
func accessTo(resources *oci.LinuxResources, d oci.LinuxDevice) string {
	access := "r"
	if resources == nil {
		return access
	}
	for _, rule := range resources.Devices {
		if rule.Allow && rule.Type == d.Type && rule.Major != nil && *rule.Major == d.Major && rule.Minor != nil && *rule.Minor == d.Minor {
			access = rule.Access
		}
	}
	return access
}
