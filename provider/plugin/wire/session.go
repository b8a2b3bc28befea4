// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// session is the provider of one configuration and the calls to it.
type session struct {
	panics
	provider provider.Provider
	values   config.Values

	mu    sync.Mutex
	calls int
	// creations are those that run, also when their caller has given up.
	creations map[*creation]bool
	// retired sessions take no new calls; idle is closed when the last ended.
	retired bool
	idle    chan struct{}
	// released is closed when Teardown has returned, with releaseErr.
	release    sync.Once
	released   chan struct{}
	releaseErr error
}

// creation is a call that makes something, such as CreateInstance, and runs.
type creation struct {
	ctx  context.Context
	done chan struct{}
}

func newSession(p provider.Provider, values config.Values, panics panics) *session {
	return &session{
		panics: panics, provider: p, values: maps.Clone(values),
		creations: map[*creation]bool{}, idle: make(chan struct{}), released: make(chan struct{}),
	}
}

// enter counts a call in, unless the session is retired.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return false
	}
	s.calls++
	return true
}

func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	s.checkIdle()
}

func (s *session) checkIdle() {
	if s.retired && s.calls == 0 {
		close(s.idle)
	}
}

// retire lets no new calls in, and tears the provider down when those that
// run have ended, which may be after ctx.
func (s *session) retire(ctx context.Context) {
	s.release.Do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.retired = true
		s.checkIdle()
		go func() {
			defer close(s.released)
			<-s.idle
			defer s.recovered("Teardown", &s.releaseErr)
			s.releaseErr = provider.Teardown(ctx, s.provider)
		}()
	})
}

// teardown retires and waits for the end.
func (s *session) teardown(ctx context.Context) error {
	s.retire(ctx)
	select {
	case <-s.released:
		return s.releaseErr
	case <-ctx.Done():
		return fmt.Errorf("%w: Teardown goes on, since calls or the provider have not ended: %w", provider.ErrUnavailable, context.Cause(ctx))
	}
}

// call makes a call that neither makes nor lists anything.
func (s *session) call(_ context.Context, _ string, call func() error) error { return call() }

// list makes a call that lists what others make.
func (s *session) list(ctx context.Context, _ string, call func() error) error {
	s.settle(ctx)
	return call()
}

// create makes a call that makes something, unless its caller has given up on the way: a
// list need not have waited for that.
func (s *session) create(ctx context.Context, method string, call func() error) error {
	defer s.creating(ctx)()
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %s was not begun: %w", provider.ErrUnavailable, method, context.Cause(ctx))
	}
	return call()
}

// creating notes a creation until the function it returns is called.
func (s *session) creating(ctx context.Context) func() {
	c := &creation{ctx, make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.creations[c] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.creations, c)
		close(c.done)
	}
}

// settleTimeout bounds how long one creation that does not end can delay
// everybody's lists. The contract wants it to end soon.
const settleTimeout = 10 * time.Second

// settle waits for the creations whose caller has given up.
func (s *session) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for _, c := range s.givenUp() {
		select {
		case <-c.done:
		case <-ctx.Done():
			return
		}
	}
}

func (s *session) givenUp() []*creation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*creation
	for c := range s.creations {
		if c.ctx.Err() != nil {
			list = append(list, c)
		}
	}
	return list
}

// isReleased says that nobody needs to wait for the session.
func (s *session) isReleased() bool {
	select {
	case <-s.released:
		return true
	default:
		return false
	}
}
