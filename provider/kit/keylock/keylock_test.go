// SPDX-License-Identifier: Apache-2.0

package keylock

import (
	"context"
	"errors"
	"sync"
	"testing"
)

func TestOneHolderForAKey(t *testing.T) {
	var locks Locks
	var group sync.WaitGroup
	counts := map[string]*int{"a": new(int), "b": new(int)}
	for range 50 {
		for key, count := range counts {
			group.Go(func() {
				unlock, err := locks.Take(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				defer unlock()
				*count++ // the race detector sees two holders
			})
		}
	}
	group.Wait()
	if *counts["a"] != 50 || *counts["b"] != 50 {
		t.Errorf("counted %d and %d", *counts["a"], *counts["b"])
	}
	if len(locks.held) != 0 {
		t.Errorf("%d locks are kept", len(locks.held))
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	var locks Locks
	unlock, err := locks.Take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := locks.Take(ctx, "a"); !errors.Is(err, cause) {
		t.Errorf("%v, want %v", err, cause)
	}
	other, err := locks.Take(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	unlock()
	if len(locks.held) != 0 {
		t.Errorf("%d locks are kept", len(locks.held))
	}
}
