// SPDX-License-Identifier: Apache-2.0

// Package guestlimits reads the limits of a container in the guest from the
// record that the webhook leaves on its pod. It is small, for programs that do
// not otherwise know Kubernetes' types.
package guestlimits

import (
	"encoding/json"
	"fmt"
	"strings"
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

// MaxRecord is the length of the longest record in bytes: more than a hundred
// containers have.
const MaxRecord = 16 << 10

// maxBrackets is how many a record has, in names at most; depth costs memory.
const maxBrackets = 100

// record is the part of podsize.Record that is needed here. Only the requested
// container is decoded.
type record struct {
	Containers map[string]json.RawMessage `json:"containers"`
}

type container struct {
	Requests struct {
		CPU quantity `json:"cpu"`
	} `json:"requests"`
	Limits struct {
		CPU    quantity `json:"cpu"`
		Memory quantity `json:"memory"`
	} `json:"limits"`
}

// Of returns the limits that kubelet would have set for the container, none if
// the annotations hold no record of it. The record may be a user's text: what it
// costs to read is bounded.
func Of(annotations map[string]string, name string) (Limits, error) {
	text, found := annotations[Annotation]
	if !found {
		return Limits{}, nil
	}
	if len(text) > MaxRecord {
		return Limits{}, fmt.Errorf("annotation %s has %d bytes: at most %d are read", Annotation, len(text), MaxRecord)
	}
	if strings.Count(text, "[") > maxBrackets {
		return Limits{}, fmt.Errorf("annotation %s: a record has no lists", Annotation)
	}
	var r record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Limits{}, fmt.Errorf("annotation %s: %w", Annotation, err)
	}
	part, found := r.Containers[name]
	if !found {
		return Limits{}, nil
	}
	var c container
	if err := json.Unmarshal(part, &c); err != nil {
		return Limits{}, fmt.Errorf("annotation %s: container %q: %w", Annotation, name, err)
	}
	return limits(c.Requests.CPU, c.Limits.CPU, c.Limits.Memory), nil
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
