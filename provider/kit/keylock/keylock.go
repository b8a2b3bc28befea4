// SPDX-License-Identifier: Apache-2.0

// Package keylock has a lock for each key that somebody in this process works
// on: a provider creates and deletes one instance at a time for a key, and any
// number for different ones.
package keylock

import (
	"context"
	"sync"
)

// Locks are the locks that are held. The zero value is ready.
type Locks struct {
	mu   sync.Mutex
	held map[string]*turn
}

// turn is passed from one holder to the next.
type turn struct {
	token chan struct{}
	users int
}

// Take waits for the key's turn, or for the end of ctx, whose cause is then the
// error.
func (l *Locks) Take(ctx context.Context, key string) (unlock func(), err error) {
	t := l.enter(key)
	select {
	case t.token <- struct{}{}:
		return func() { <-t.token; l.leave(key, t) }, nil
	case <-ctx.Done():
		l.leave(key, t)
		return nil, context.Cause(ctx)
	}
}

func (l *Locks) enter(key string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]*turn{}
	}
	t := l.held[key]
	if t == nil {
		t = &turn{token: make(chan struct{}, 1)}
		l.held[key] = t
	}
	t.users++
	return t
}

func (l *Locks) leave(key string, t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(l.held, key)
	}
}
