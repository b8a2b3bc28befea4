// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestLockExcludesOthersUntilReleased(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "lock")
	first, err := Acquire(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := TryAcquire(path); second != nil || err != nil {
		t.Fatalf("second lock: %v, %v; want none and no error", second, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Acquire(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("waiting for a held lock: %v, want deadline exceeded", err)
	}
	first.Release()
	second, err := Acquire(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
}

// Every holder removes file and folder, so that each of the others finds the
// lock again; still only one at a time may be inside.
func TestRemovedLockStillExcludes(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "sub")
	path := filepath.Join(folder, "lock")
	var inside, total atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				lock, err := Acquire(t.Context(), path)
				if err != nil {
					t.Error(err)
					return
				}
				if holders := inside.Add(1); holders != 1 {
					t.Errorf("%d holders at once", holders)
				}
				total.Add(1)
				inside.Add(-1)
				lock.ReleaseAndRemove()
				os.Remove(folder)
			}
		})
	}
	wg.Wait()
	if total.Load() != 8*25 {
		t.Errorf("%d entries, want %d", total.Load(), 8*25)
	}
}

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	var got map[string]int
	if err := Read(path, &got); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("missing file: %v", err)
	}
	if err := Write(path, map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	if err := Read(path, &got); err != nil || got["a"] != 1 {
		t.Fatalf("read back %v, %v", got, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Read(path, &got); err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("damaged file: %v, want an error that names it", err)
	}
}
