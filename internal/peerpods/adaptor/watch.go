// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"errors"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// errEnded is why waiting for an agent is over before its time.
var errEnded = errors.New("the VM has ended and will not answer any more")

// whileRunning derives a context that ends, with errEnded as its cause, when
// the cloud says that the instance has stopped: a guest that panics would
// otherwise be waited for until ProxyTimeout. An instance that the cloud does
// not know yet, and a cloud that does not answer, change nothing. Call stop in
// any case.
func (s *Service) whileRunning(ctx context.Context, instance string) (running context.Context, stop func()) {
	running, end := context.WithCancelCause(ctx)
	getter, ok := provider.As[provider.Getter](s.opts.Provider)
	if !ok {
		return running, func() { end(nil) }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for poll.Sleep(running, s.opts.WatchInterval) == nil {
			i, err := getter.GetInstance(running, instance)
			if err == nil && (i.State == provider.StateStopped || i.State == provider.StateDeleting) {
				end(errEnded)
			}
		}
	}()
	return running, func() { end(nil); <-done }
}

// watchEnded closes the agent channel of ready sandboxes whose VM has ended, so that shims
// notice at once and not after most of a minute without a reply. It does so only where
// that needs no call to a cloud: with providers whose VMs are on a bridge of this node.
func (s *Service) watchEnded(ctx context.Context) {
	getter, ok := provider.As[provider.Getter](s.opts.Provider)
	if _, local := provider.As[provider.NodeAddresser](s.opts.Provider); !ok || !local {
		return
	}
	for poll.Sleep(ctx, s.opts.EndedInterval) == nil {
		for _, sb := range s.all() {
			rec := sb.snapshot()
			if rec.State != StateReady || sb.ended.Load() || !hasEnded(ctx, getter, rec.InstanceID) {
				continue
			}
			sb.ended.Store(true)
			s.logger(sb).Warn("the VM has ended; its pod's agent channel is closed", "instance", rec.InstanceID)
			if err := s.opts.Relay.Stop(ctx, sb.id); err != nil {
				sb.ended.Store(false) // next time
			}
		}
	}
}

func hasEnded(ctx context.Context, getter provider.Getter, instance string) bool {
	i, err := getter.GetInstance(ctx, instance)
	if err != nil {
		return errors.Is(err, provider.ErrNotFound)
	}
	return i.State == provider.StateStopped || i.State == provider.StateDeleting
}
