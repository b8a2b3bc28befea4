// SPDX-License-Identifier: Apache-2.0

package outrigger

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/provider"
)

// task is a call in the background. Its result may be read once done is closed.
type task struct {
	cancel context.CancelFunc
	done   chan struct{}

	instance *provider.Instance
	gone     bool
	err      error
	// ended is by [Options.Elapsed].
	ended time.Duration
}

// start runs f until it ends, the backend is closed, or somebody ends it.
func (b *Backend) start(name types.NamespacedName, timeout time.Duration, f func(context.Context, *task)) *task {
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	t := &task{cancel: cancel, done: make(chan struct{})}
	b.work.Go(func() {
		defer cancel()
		f(ctx, t)
		t.ended = b.options.Elapsed()
		close(t.done)
		b.options.Enqueuer.Enqueue(name)
	})
	return t
}

func (t *task) running() bool {
	if t == nil {
		return false
	}
	select {
	case <-t.done:
		return false
	default:
		return true
	}
}

// end cancels the call and does not wait for it.
func (t *task) end() {
	if t != nil {
		t.cancel()
	}
}
