// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"

	"github.com/outrigger/outrigger/internal/peerpods/shim/guestspec"
	"github.com/outrigger/outrigger/internal/peerpods/webhook/guestlimits"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// limit gives a container the limits that the webhook took out of its pod, as our own
// shim does. Any shim passes the webhook's record on, whether it knows it or not, if the
// runtime handler lets the annotation through. It reports whether anything changed.
func limit(spec *agent.Spec) (bool, error) {
	ann := spec.GetAnnotations()
	// Both are annotations in which runtimes name a container.
	name := cmp.Or(ann["io.kubernetes.cri.container-name"], ann["io.kubernetes.container.name"])
	limits, err := guestlimits.Of(ann, name)
	if err != nil || limits == (guestlimits.Limits{}) {
		return false, err
	}
	guestspec.Limit(spec, limits)
	return true, nil
}
