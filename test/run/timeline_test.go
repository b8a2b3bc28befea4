// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/timeline"
)

// timelineIsPlausible looks at the timeline of a pod of which at least one container was
// started.
func timelineIsPlausible(t *testing.T, p *pod) {
	line, err := p.node.client.Timeline(t.Context(), p.ID())
	if err != nil || line.Missing != "" || line.Uncertainty <= 0 {
		t.Fatalf("%v, missing %q, uncertainty %v", err, line.Missing, line.Uncertainty)
	}
	timeline.Write(t.Output(), "text", "features", line, 80)
	first := map[string]timeline.Step{}
	for _, s := range line.Steps {
		if _, known := first[s.Name]; !known {
			first[s.Name] = s
		}
	}
	// Each is over before the next one is; the node's clock and the guest's are mixed.
	order := []string{
		"inspect-network", "create-instance", "tunnel", "agent", "tcp-connect", "first-reply", "connect", "ready",
		"create-sandbox", "resolve-image", "download-layer", "unpack-layer", "mount-image", "runtime-create", "runtime-start",
	}
	var last timeline.Step
	for _, name := range order {
		s, known := first[name]
		if !known {
			t.Fatalf("no step %s", name)
		}
		if s.End.Add(2 * line.Uncertainty).Before(last.End) {
			t.Errorf("%s ended %v before %s", name, last.End.Sub(s.End), last.Name)
		}
		last = s
	}
	if s := first["forwarder"]; s.Where != timeline.Guest || s.End.After(first["first-reply"].End.Add(2*line.Uncertainty)) {
		t.Errorf("the forwarder replied before its port was open: %+v", s)
	}
	if guest := first["restored"].Where + first["kernel"].Where; guest != timeline.Guest {
		t.Errorf("the guest was neither booted nor restored, or both: %q", guest)
	}
	var sum time.Duration
	for _, name := range []string{"inspect-network", "choose-zone", "reserve", "record-intent", "claim", "create-instance", "tunnel", "connect", "attach-disks", "ready"} {
		sum += first[name].Took()
	}
	if whole := first["ready"].End.Sub(first["inspect-network"].Start); sum <= 0 || sum > whole {
		t.Errorf("the adaptor's steps took %v together, within %v", sum, whole)
	}
}
