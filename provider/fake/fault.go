// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// Op is a call to the cloud.
type Op string

// The calls that faults strike and [Cloud.Calls] counts.
const (
	OpCreate   Op = "create"
	OpDelete   Op = "delete"
	OpList     Op = "list"
	OpGet      Op = "get"
	OpConsole  Op = "console"
	OpPowerOff Op = "power-off"
	OpPowerOn  Op = "power-on"
	OpTypes    Op = "types"
	OpVerify   Op = "verify"

	OpEnsureBalancer Op = "ensure-load-balancer"
	OpGetBalancer    Op = "get-load-balancer"
	OpListBalancers  Op = "list-load-balancers"
	OpDeleteBalancer Op = "delete-load-balancer"

	OpCreateDisk Op = "create-disk"
	OpGetDisk    Op = "get-disk"
	OpListDisks  Op = "list-disks"
	OpDeleteDisk Op = "delete-disk"
	OpAttachDisk Op = "attach-disk"
	OpDetachDisk Op = "detach-disk"
	OpResizeDisk Op = "resize-disk"

	OpCreateSnapshot Op = "create-snapshot"
	OpGetSnapshot    Op = "get-snapshot"
	OpListSnapshots  Op = "list-snapshots"
	OpDeleteSnapshot Op = "delete-snapshot"
)

// Effect is how much of a call's work is done although it fails.
type Effect int

// Effects. A partial creation leaves an instance in state pending with its
// interfaces, disk and addresses, and returns its id with the error. A partial
// deletion removes the instance and leaves those. A load balancer that is
// ensured in part has no backends. For other calls partial is the same as full.
const (
	EffectNone Effect = iota
	EffectPartial
	EffectFull
)

// Fault is one line of the script: what befalls which call.
type Fault struct {
	// Op is the call it strikes.
	Op Op
	// Skip lets that many calls through first.
	Skip int
	// Times is how often it strikes: 0 means once, below 0 means always.
	Times int
	// Delay passes first, or less if the call's context ends.
	Delay time.Duration
	// Gate, if any, holds the call until it is opened or its context ends.
	Gate *Gate
	// Err is the answer; nil lets the call succeed.
	Err error
	// Effect is what happens in the cloud all the same when Err is set.
	Effect Effect
}

// Fail returns err and does nothing.
func Fail(op Op, err error) Fault { return Fault{Op: op, Err: err} }

// Throttled returns as a cloud that limits the rate of calls.
func Throttled(op Op) Fault {
	return Fail(op, fmt.Errorf("%w: rate of requests exceeded", provider.ErrUnavailable))
}

// Unauthenticated returns as if the credentials had expired.
func Unauthenticated(op Op) Fault {
	return Fail(op, fmt.Errorf("%w: credentials have expired", provider.ErrUnauthenticated))
}

// Quota fails a creation since the account may have no more.
func Quota() Fault {
	return Fail(OpCreate, fmt.Errorf("%w: the account may have no more vCPUs", provider.ErrQuota))
}

// NoCapacity fails a creation since the zone has no machine left.
func NoCapacity() Fault {
	return Fail(OpCreate, fmt.Errorf("%w: zone a has none of this type", provider.ErrCapacity))
}

// LostReply does what was asked and loses the answer.
func LostReply(op Op) Fault {
	return Fault{Op: op, Err: fmt.Errorf("%w: connection reset before the reply", provider.ErrUnavailable), Effect: EffectFull}
}

// PartialCreate leaves half an instance and returns its id with an error.
func PartialCreate() Fault {
	return Fault{Op: OpCreate, Err: fmt.Errorf("%w: address not assigned", provider.ErrUnavailable), Effect: EffectPartial}
}

// PartialDelete removes the instance only and returns an error.
func PartialDelete() Fault {
	return Fault{Op: OpDelete, Err: fmt.Errorf("%w: disk is still attached", provider.ErrUnavailable), Effect: EffectPartial}
}

// Slow delays a call, which then succeeds.
func Slow(op Op, delay time.Duration) Fault { return Fault{Op: op, Delay: delay} }

// Block holds a call until the gate is opened; the gate tells when a call has
// reached it.
func Block(op Op) (Fault, *Gate) {
	gate := &Gate{reached: make(chan struct{}), open: make(chan struct{})}
	return Fault{Op: op, Gate: gate}, gate
}

// Skipping lets n calls through before the fault strikes.
func (f Fault) Skipping(n int) Fault { f.Skip = n; return f }

// Repeated strikes n times; below 0 always.
func (f Fault) Repeated(n int) Fault { f.Times = n; return f }

// reply returns the error of a call that the fault strikes; nil if there is none.
func (f Fault) reply(op Op) error {
	if f.Err == nil {
		return nil
	}
	return fmt.Errorf("fake: %s: %w", op, f.Err)
}

func (f Fault) wait(ctx context.Context, latency time.Duration) error {
	if f.Gate != nil {
		if err := f.Gate.pass(ctx); err != nil {
			return err
		}
	}
	if delay := latency + f.Delay; delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// Gate holds calls in the middle, so that a test can act meanwhile.
type Gate struct {
	reachOnce, openOnce sync.Once
	reached, open       chan struct{}
}

// Reached returns a channel that is closed when the first call has come to the gate.
func (g *Gate) Reached() <-chan struct{} { return g.reached }

// Open lets all calls through, also later ones. It may be called again.
func (g *Gate) Open() { g.openOnce.Do(func() { close(g.open) }) }

func (g *Gate) pass(ctx context.Context) error {
	g.reachOnce.Do(func() { close(g.reached) })
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// script holds the faults that have not struck yet and counts calls.
type script struct {
	mu     sync.Mutex
	faults []Fault
	calls  map[Op]int
}

// Inject adds faults to the end of the script. One call meets at most one
// fault: the first in the script that is due.
func (c *Cloud) Inject(faults ...Fault) {
	c.script.mu.Lock()
	defer c.script.mu.Unlock()
	for _, fault := range faults {
		if fault.Times == 0 {
			fault.Times = 1
		}
		c.script.faults = append(c.script.faults, fault)
	}
}

// Calls returns how often op was called over this connection, including refused calls.
func (c *Cloud) Calls(op Op) int {
	c.script.mu.Lock()
	defer c.script.mu.Unlock()
	return c.script.calls[op]
}

// next counts the call and takes the fault that is due.
func (s *script) next(op Op) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[Op]int{}
	}
	s.calls[op]++
	var due Fault
	for i := range s.faults {
		fault := &s.faults[i]
		switch {
		case fault.Op != op || fault.Times == 0:
		case fault.Skip > 0:
			fault.Skip--
		case due.Op == "":
			due = *fault
			fault.Times--
		}
	}
	return due
}
