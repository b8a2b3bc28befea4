// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"time"

	"github.com/outrigger/outrigger/provider"
)

const (
	// BootLimit is how long a VM of a pool may take from its record to the first answer.
	BootLimit = 10 * time.Minute
	// ProbeTimeout bounds one question whether a VM waits, and the connection to one that did.
	ProbeTimeout = 5 * time.Second
)

// ProbePause returns the pause before a VM of that age, which does not wait yet, is asked again.
func ProbePause(age time.Duration) time.Duration {
	return min(max(age/16, 250*time.Millisecond), ProbeTimeout)
}

// The pause after a VM that could not be made doubles between these: the first where it
// may go soon, the second where somebody has to do something, as after a quota.
const (
	soonPause = 5 * time.Second
	latePause = time.Minute
	maxPause  = 15 * time.Minute
)

// Failures are those in a row in making VMs of one pool. They are not safe for concurrent use.
type Failures struct {
	count int
	until time.Time
}

// Add counts one. Of VMs that fail together the first lengthens the pause.
func (f *Failures) Add(err error, now time.Time) {
	if now.Before(f.until) {
		return
	}
	pause := latePause
	if class := provider.Class(err); class == provider.ErrUnavailable || class == provider.ErrUnknown {
		pause = soonPause
	}
	f.until = now.Add(min(pause<<min(f.count, 10), maxPause))
	f.count++
}

// Pause returns for how long no VM is to be made; 0 or less when one may be.
func (f *Failures) Pause(now time.Time) time.Duration { return f.until.Sub(now) }
