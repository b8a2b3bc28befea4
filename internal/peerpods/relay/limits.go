// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"github.com/outrigger/outrigger/internal/peerpods/webhook/guestlimits"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// containerNames are the annotations in which runtimes name a container.
var containerNames = []string{"io.kubernetes.cri.container-name", "io.kubernetes.container.name"}

// limit gives a container the limits that the webhook took out of its pod: the
// VM as a whole enforces them, but not between its containers. A shim passes
// the webhook's record on, whether it knows it or not, if the runtime handler
// lets the annotation through. Limits that the spec has win. It reports whether
// anything changed.
func limit(spec *agent.Spec) (bool, error) {
	limits, err := guestlimits.Of(spec.GetAnnotations(), containerName(spec))
	if err != nil || limits == (guestlimits.Limits{}) {
		return false, err
	}
	if spec.Linux == nil {
		spec.Linux = &agent.Linux{}
	}
	if spec.Linux.Resources == nil {
		spec.Linux.Resources = &agent.LinuxResources{}
	}
	limitMemory(spec.Linux.Resources, limits)
	limitCPU(spec.Linux.Resources, limits)
	return true, nil
}

func containerName(spec *agent.Spec) string {
	for _, key := range containerNames {
		if name := spec.GetAnnotations()[key]; name != "" {
			return name
		}
	}
	return ""
}

func limitMemory(res *agent.LinuxResources, limits guestlimits.Limits) {
	if limits.MemoryBytes == 0 || res.Memory.GetLimit() > 0 {
		return
	}
	if res.Memory == nil {
		res.Memory = &agent.LinuxMemory{}
	}
	res.Memory.Limit, res.Memory.Swap = limits.MemoryBytes, limits.MemoryBytes
}

func limitCPU(res *agent.LinuxResources, limits guestlimits.Limits) {
	if res.CPU == nil {
		res.CPU = &agent.LinuxCPU{}
	}
	// The kubelet gives 2 shares to a container without a request.
	if limits.CPUShares > 0 && res.CPU.Shares <= 2 {
		res.CPU.Shares = limits.CPUShares
	}
	if limits.CPUQuota > 0 && res.CPU.Quota <= 0 {
		res.CPU.Quota, res.CPU.Period = limits.CPUQuota, limits.CPUPeriod
	}
}
