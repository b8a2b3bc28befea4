// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// sessions are the configurations of a process.
type sessions struct {
	panics
	opener opener
	// fixed, if set, is used for all names: the process was configured when it was
	// started.
	fixed *session

	mu      sync.Mutex
	closed  bool
	byName  map[string]*session
	opening map[string]chan struct{} // names being opened; closed when that has ended
	retired []*session
}

// enter returns the session of a configuration. The caller must call its leave.
func (all *sessions) enter(name string) (*session, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	s := all.byName[name]
	if all.fixed != nil {
		s = all.fixed
	}
	if all.closed {
		return nil, all.stopping()
	}
	if s == nil || !s.enter() {
		return nil, fmt.Errorf("%w: %w: provider %s has no configuration %q here: the process was started again, or Configure was never called",
			provider.ErrUnavailable, ErrNotConfigured, all.opener.name, name)
	}
	return s, nil
}

func (all *sessions) stopping() error {
	return fmt.Errorf("%w: the process of provider %s is stopping", provider.ErrUnavailable, all.opener.name)
}

// configure returns the session of a configuration. It opens a new one unless there is
// one with the same values.
func (all *sessions) configure(ctx context.Context, name string, values config.Values) (*session, error) {
	if all.fixed != nil {
		return all.fixed, all.refuseValues(values)
	}
	opened, err := all.claim(ctx, name)
	if err != nil {
		return nil, err
	}
	defer opened()
	if s := all.find(name, values); s != nil {
		return s, nil
	}
	return all.open(ctx, name, values)
}

func (all *sessions) refuseValues(values config.Values) error {
	if len(values) == 0 {
		return nil
	}
	return fmt.Errorf("%w: provider %s was configured by whoever started its process: set %s there, not here",
		provider.ErrInvalidArgument, all.opener.name, nameList(values))
}

func nameList(values config.Values) string {
	names := slices.Sorted(maps.Keys(values))
	return fmt.Sprintf("%q", names)
}

// claim waits until nobody else opens the configuration. The caller calls opened when
// its own opening has ended.
func (all *sessions) claim(ctx context.Context, name string) (opened func(), err error) {
	for {
		busy, err := all.tryClaim(name)
		if err != nil {
			return nil, err
		}
		if busy == nil {
			return func() { all.unclaim(name) }, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: an earlier NewProvider of %s has not returned: %w", provider.ErrUnavailable, all.opener.name, context.Cause(ctx))
		}
	}
}

// tryClaim claims the configuration and returns nil, or returns a channel that is
// closed when the current claim ends.
func (all *sessions) tryClaim(name string) (busy chan struct{}, err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return nil, all.stopping()
	}
	if all.opener.single() {
		for other := range all.byName {
			if other != name {
				return nil, all.onlyOne(other, name)
			}
		}
		for other, busy := range all.opening {
			if other != name {
				return busy, nil
			}
		}
	}
	if busy := all.opening[name]; busy != nil {
		return busy, nil
	}
	all.opening[name] = make(chan struct{})
	return nil, nil
}

func (all *sessions) onlyOne(have, wanted string) error {
	return fmt.Errorf("%w: provider %s can have only one configuration in a process, here %q, so not %q too: its author can lift that with package provider/config",
		provider.ErrInvalidArgument, all.opener.name, have, wanted)
}

func (all *sessions) unclaim(name string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	close(all.opening[name])
	delete(all.opening, name)
}

// find returns the session of a configuration if it has these values, else nil.
func (all *sessions) find(name string, values config.Values) *session {
	all.mu.Lock()
	defer all.mu.Unlock()
	if s := all.byName[name]; s != nil && maps.Equal(s.values, values) {
		return s
	}
	return nil
}

// open makes a provider, and its session replaces the earlier one. If the caller has
// given up meanwhile, or the process stops, it tears the provider down.
func (all *sessions) open(ctx context.Context, name string, values config.Values) (s *session, err error) {
	defer all.recovered("NewProvider", &err)
	p, err := all.opener.open(ctx, values)
	if err != nil {
		return nil, err
	}
	s = newSession(p, values, all.panics)
	if all.install(ctx, name, s) {
		return s, nil
	}
	s.retire(ctx)
	return nil, all.stopping()
}

func (all *sessions) install(ctx context.Context, name string, s *session) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed || ctx.Err() != nil {
		all.retired = append(all.retired, s)
		return false
	}
	if old := all.drop(context.WithoutCancel(ctx), name); old != nil { // its calls may go on after this one
		go all.report(name, old)
	}
	all.byName[name] = s
	return true
}

// report logs the error of a Teardown that nobody waits for.
func (all *sessions) report(name string, old *session) {
	<-old.released
	if old.releaseErr != nil {
		all.log.Warn("Teardown of a provider that was replaced has failed", "provider", all.opener.name, "configuration", name, "error", old.releaseErr)
	}
}

// drop removes and retires the session of a configuration, if there is one. mu is held.
func (all *sessions) drop(ctx context.Context, name string) *session {
	s := all.byName[name]
	if s == nil {
		return nil
	}
	delete(all.byName, name)
	s.retire(ctx)
	all.retired = slices.DeleteFunc(append(all.retired, s), (*session).isReleased)
	return s
}

// teardown releases a configuration, if it exists. The fixed one is kept for other
// callers.
func (all *sessions) teardown(ctx context.Context, name string) error {
	all.mu.Lock()
	s := all.drop(ctx, name)
	all.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.teardown(ctx)
}

// close tears down all sessions. Later calls fail.
func (all *sessions) close(ctx context.Context) error {
	all.mu.Lock()
	all.closed = true
	for name := range all.byName {
		all.drop(ctx, name)
	}
	waiting := slices.DeleteFunc(all.retired, (*session).isReleased)
	if all.fixed != nil {
		waiting = append(waiting, all.fixed)
	}
	all.mu.Unlock()
	var errs []error
	for _, s := range waiting {
		errs = append(errs, s.teardown(ctx))
	}
	return errors.Join(errs...)
}
