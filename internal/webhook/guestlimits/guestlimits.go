// SPDX-License-Identifier: Apache-2.0

// Package guestlimits reads the limits of a container in the guest from the
// record that the webhook leaves on its pod. It is small, for programs that do
// not otherwise know Kubernetes' types.
package guestlimits

import (
	"encoding/json"
	"fmt"
)

// Annotation holds the record; package podsize writes it.
const Annotation = "outrigger.dev/resources"

// Limits are values of the cgroup controllers. Zero means no limit.
type Limits struct {
	MemoryBytes int64
	CPUShares   uint64
	CPUQuota    int64
	CPUPeriod   uint64
}

// period is what kubelet uses, in microseconds.
const period = 100_000

type record struct {
	Containers map[string]struct {
		Requests, Limits map[string]quantity
	}
}

// Of answers the limits that kubelet would have set for the container, none if
// the annotations hold no record of it.
func Of(annotations map[string]string, container string) (Limits, error) {
	text, found := annotations[Annotation]
	if !found {
		return Limits{}, nil
	}
	var r record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Limits{}, fmt.Errorf("annotation %s: %w", Annotation, err)
	}
	c, found := r.Containers[container]
	if !found {
		return Limits{}, nil
	}
	return limits(c.Requests["cpu"], c.Limits["cpu"], c.Limits["memory"]), nil
}

// limits converts as kubelet does: at least 2 shares, at least 1 ms of quota.
func limits(request, limit, memory quantity) Limits {
	l := Limits{MemoryBytes: max(memory.times(1), 0)}
	if milli := request.times(1000); milli > 0 {
		l.CPUShares = uint64(min(max(milli*1024/1000, 2), 262144))
	}
	if milli := limit.times(1000); milli > 0 {
		l.CPUQuota, l.CPUPeriod = max(milli*period/1000, 1000), period
	}
	return l
}
