// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"errors"
	"sync"
	"testing"
)

func newPool(t *testing.T, min uint32) *VNIPool {
	t.Helper()
	pool, err := NewVNIPool(min)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func acquire(t *testing.T, pool *VNIPool) uint32 {
	t.Helper()
	v, err := pool.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVNIPoolRefusesBadNumbers(t *testing.T) {
	for _, min := range []uint32{0, 1 << 24} {
		if _, err := NewVNIPool(min); err == nil {
			t.Errorf("pool from %d: no error", min)
		}
		if err := newPool(t, 1).Reserve(min); err == nil {
			t.Errorf("reserve %d: no error", min)
		}
	}
}

func TestVNIPoolSkipsReserved(t *testing.T) {
	pool := newPool(t, 555000)
	first := acquire(t, newPool(t, 555000))
	if err := pool.Reserve(first); err != nil {
		t.Fatal(err)
	}
	if err := pool.Reserve(first); err == nil {
		t.Error("reserving twice: no error")
	}
	if err := pool.Reserve(7); err != nil {
		t.Errorf("below the minimum: %v", err)
	}
	if v := acquire(t, pool); v == first {
		t.Errorf("acquired %d, which is reserved", v)
	}
}

func TestVNIPoolReusesLate(t *testing.T) {
	pool := newPool(t, maxVNI-2)
	first := acquire(t, pool)
	pool.Release(first)
	pool.Release(first)
	second, third := acquire(t, pool), acquire(t, pool)
	if second == first || third == first {
		t.Errorf("got %d again while there were others", first)
	}
	if v := acquire(t, pool); v != first {
		t.Errorf("got %d, want %d", v, first)
	}
	if _, err := pool.Acquire(); !errors.Is(err, ErrVNIsExhausted) {
		t.Fatalf("got %v, want ErrVNIsExhausted", err)
	}
	pool.Release(second)
	if v := acquire(t, pool); v != second {
		t.Errorf("got %d, want %d", v, second)
	}
}

// TestVNIsCannotBeGuessed: neighbours of one that is known are not in use.
func TestVNIsCannotBeGuessed(t *testing.T) {
	pool := newPool(t, 555000)
	before, near := acquire(t, pool), 0
	for range 100 {
		v := acquire(t, pool)
		if v-before+1000 < 2000 {
			near++
		}
		before = v
	}
	if near > 10 { // 1 in 8,000 is
		t.Errorf("%d of 100 are near the one before", near)
	}
}

func TestVNIPoolConcurrently(t *testing.T) {
	const workers, each = 8, 25
	pool := newPool(t, 600000)
	var mu sync.Mutex
	seen := map[uint32]bool{}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				v, err := pool.Acquire()
				mu.Lock()
				if err != nil || seen[v] {
					t.Errorf("got %d, %v", v, err)
				}
				seen[v] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != workers*each {
		t.Errorf("%d different numbers, want %d", len(seen), workers*each)
	}
}
