// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// GiveDevice gives a container's device the numbers that the disk of a storage has in this VM, and lets the container
// use it. Nothing is written to the disk.
func (d *Disks) GiveDevice(ctx context.Context, st *agent.Storage, spec *agent.Spec) error {
	devices := spec.GetLinux().GetDevices()
	i := slices.IndexFunc(devices, func(dev *agent.LinuxDevice) bool { return dev.Path == st.MountPoint && dev.Type == "b" })
	if i < 0 || len(st.Options) != 1 {
		return fmt.Errorf("the container has no block device %.100q", st.MountPoint)
	}
	device, err := d.await(ctx, st.Source)
	if err != nil {
		return err
	}
	var of unix.Stat_t
	if err := unix.Stat(device, &of); err != nil {
		return &os.PathError{Op: "stat", Path: device, Err: err}
	}
	devices[i].Major, devices[i].Minor = int64(unix.Major(of.Rdev)), int64(unix.Minor(of.Rdev))
	if spec.Linux.Resources == nil {
		spec.Linux.Resources = &agent.LinuxResources{}
	}
	spec.Linux.Resources.Devices = append(spec.Linux.Resources.Devices,
		&agent.LinuxDeviceCgroup{Allow: true, Type: "b", Major: devices[i].Major, Minor: devices[i].Minor, Access: st.Options[0]})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.raw = append(d.raw, device)
	return nil
}
