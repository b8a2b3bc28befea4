// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"errors"

	"github.com/outrigger/outrigger/provider"
)

// errEnded is why waiting for an agent is over before its time.
var errEnded = errors.New("the VM has ended, it will not answer any more")

// whileRunning derives a context that ends, with errEnded as its cause, when
// the cloud says that the instance has stopped: a guest that panics would else
// be waited for until ProxyTimeout. An instance that the cloud does not know
// yet, and a cloud that does not answer, change nothing. Call stop in any case.
func (s *Service) whileRunning(ctx context.Context, instance string) (running context.Context, stop func()) {
	running, end := context.WithCancelCause(ctx)
	getter, ok := provider.As[provider.Getter](s.opts.Provider)
	if !ok {
		return running, func() { end(nil) }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause(running, s.opts.WatchInterval) == nil {
			i, err := getter.GetInstance(running, instance)
			if err == nil && (i.State == provider.StateStopped || i.State == provider.StateDeleting) {
				end(errEnded)
			}
		}
	}()
	return running, func() { end(nil); <-done }
}
