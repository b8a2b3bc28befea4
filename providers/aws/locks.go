// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"fmt"
	"sync"

	"github.com/outrigger/outrigger/provider"
)

// locks is one lock for each name, as long as somebody wants it.
type locks struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	free    chan struct{} // holds one token while nobody has the lock
	wanting int
}

// lock waits for a lock until ctx ends.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	t := l.want(name)
	select {
	case <-t.free:
		return func() { t.free <- struct{}{}; l.leave(name, t) }, nil
	case <-ctx.Done():
		l.leave(name, t)
		return nil, fmt.Errorf("%w: waiting for another call: %w", provider.ErrUnavailable, ctx.Err())
	}
}

func (l *locks) want(name string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.held[name]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		l.held[name] = t
	}
	t.wanting++
	return t
}

func (l *locks) leave(name string, t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.wanting--; t.wanting == 0 {
		delete(l.held, name)
	}
}
