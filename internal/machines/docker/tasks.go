// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"sync"
)

// tasks take longer than a reconciliation may: one at a time for each key, and
// few at once. They live in this process alone. That is enough, because only
// their effect at the engine counts: who finds it missing begins again.
type tasks struct {
	mu      sync.Mutex
	known   map[string]*task
	slots   chan struct{}
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

type task struct {
	done chan struct{}
	err  error
	stop context.CancelFunc
	// requesters are the objects that asked for it.
	requesters map[machineOwner]bool
}

// taskSlots is how many there are at once: they move whole images.
const taskSlots = 4

func newTasks() *tasks {
	ctx, stop := context.WithCancel(context.Background())
	return &tasks{known: map[string]*task{}, slots: make(chan struct{}, taskSlots), ctx: ctx, stop: stop}
}

// do starts f unless it is running, and reports whether it has ended. An end is
// reported once; the next call starts f again. All objects that asked are
// enqueued at the end.
func (t *tasks) do(key string, who machineOwner, f func(context.Context) error) (ended bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.known[key]
	if k == nil {
		t.begin(key, who, f)
		return false, nil
	}
	select {
	case <-k.done:
		delete(t.known, key)
		return true, k.err
	default:
		k.requesters[who] = true
		return false, nil
	}
}

func (t *tasks) begin(key string, who machineOwner, f func(context.Context) error) {
	ctx, stop := context.WithCancel(t.ctx)
	k := &task{done: make(chan struct{}), stop: stop, requesters: map[machineOwner]bool{who: true}}
	t.known[key] = k
	t.running.Go(func() {
		defer stop()
		select {
		case t.slots <- struct{}{}:
			k.err = f(ctx)
			<-t.slots
		case <-ctx.Done():
			k.err = ctx.Err()
		}
		t.mu.Lock() // later calls get the result
		defer t.mu.Unlock()
		close(k.done)
		for who := range k.requesters {
			if ctx.Err() == nil {
				who.enqueue()
			}
		}
	})
}

// forget ends a task that nobody will ask for.
func (t *tasks) forget(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.known[key]; k != nil {
		k.stop()
		delete(t.known, key)
	}
}

// drop discards the result of a task that is known otherwise.
func (t *tasks) drop(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.known[key]; k != nil {
		select {
		case <-k.done:
			delete(t.known, key)
		default: // objects that wait for it are enqueued
		}
	}
}

func (t *tasks) close() {
	t.stop()
	t.running.Wait()
}
