// SPDX-License-Identifier: Apache-2.0

package shim

import (
	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/outrigger/outrigger/internal/peerpods/webhook/guestlimits"
)

const keyContainerName = "io.kubernetes.cri.container-name"

// applyPodLimits gives a container the limits that the webhook took out of its
// pod: the VM as a whole keeps to them, containers among each other would not.
// Limits that the spec has win.
func (c *container) applyPodLimits() error {
	limits, err := guestlimits.Of(c.vm.annotations, c.spec.Annotations[keyContainerName])
	if err != nil || c.ownsVM() || limits == (guestlimits.Limits{}) {
		return err
	}
	if c.spec.Linux == nil {
		c.spec.Linux = &oci.Linux{}
	}
	if c.spec.Linux.Resources == nil {
		c.spec.Linux.Resources = &oci.LinuxResources{}
	}
	res := c.spec.Linux.Resources
	if limits.MemoryBytes > 0 && (res.Memory == nil || value(res.Memory.Limit) <= 0) {
		res.Memory = &oci.LinuxMemory{Limit: &limits.MemoryBytes, Swap: &limits.MemoryBytes}
	}
	if res.CPU == nil {
		res.CPU = &oci.LinuxCPU{}
	}
	// The kubelet gives 2 shares to a container without a request.
	if limits.CPUShares > 0 && value(res.CPU.Shares) <= 2 {
		res.CPU.Shares = &limits.CPUShares
	}
	if limits.CPUQuota > 0 && value(res.CPU.Quota) <= 0 {
		res.CPU.Quota, res.CPU.Period = &limits.CPUQuota, &limits.CPUPeriod
	}
	return nil
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
