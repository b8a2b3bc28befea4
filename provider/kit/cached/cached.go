// SPDX-License-Identifier: Apache-2.0

// Package cached keeps for a while what was asked for, such as tokens and catalogues.
package cached

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// Values are kept by name. The zero value is ready.
type Values[V any] struct {
	mu     sync.Mutex
	known  map[string]value[V]
	asking map[string]*question[V]
}

type value[V any] struct {
	value V
	until time.Time // zero is for ever
}

// question is one that somebody asks now, and its answer once answered is closed.
type question[V any] struct {
	answered chan struct{}
	value    V
	err      error
	// givenUp is set if the context of who asked has ended.
	givenUp bool
}

// Get returns the value of a name. If it is not known, it is what ask returns, with the time until which it
// is good; the zero time is for ever. One caller asks while the others wait, each no longer than its
// context, for the same value or error. Errors are not kept.
func (c *Values[V]) Get(ctx context.Context, name string, ask func() (V, time.Time, error)) (got V, err error) {
	for {
		c.mu.Lock()
		if v, ok := c.known[name]; ok && (v.until.IsZero() || time.Now().Before(v.until)) {
			defer c.mu.Unlock()
			return v.value, nil
		}
		q := c.asking[name]
		if q == nil {
			q = c.begin(name)
			c.mu.Unlock()
			return c.ask(ctx, name, q, ask)
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return got, fmt.Errorf("%w: %w", provider.ErrUnavailable, context.Cause(ctx))
		case <-q.answered:
		}
		if !q.givenUp {
			return q.value, q.err
		}
	}
}

func (c *Values[V]) begin(name string) *question[V] {
	if c.asking == nil {
		c.asking, c.known = map[string]*question[V]{}, map[string]value[V]{}
	}
	c.asking[name] = &question[V]{answered: make(chan struct{})}
	return c.asking[name]
}

func (c *Values[V]) ask(ctx context.Context, name string, q *question[V], ask func() (V, time.Time, error)) (V, error) {
	var until time.Time
	q.givenUp = true // should ask panic
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if q.err == nil && !q.givenUp {
			c.known[name] = value[V]{q.value, until}
		}
		delete(c.asking, name)
		close(q.answered)
	}()
	q.value, until, q.err = ask()
	q.givenUp = q.err != nil && ctx.Err() != nil
	return q.value, q.err
}

// Forget drops the value of a name if it is the one that is given: somebody may have asked for
// another meanwhile.
func (c *Values[V]) Forget(name string, is func(V) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.known[name]; ok && is(v.value) {
		delete(c.known, name)
	}
}
