// SPDX-License-Identifier: Apache-2.0

package files_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/files"
)

func TestOneOfManyIsMade(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	var made atomic.Int32
	var racers sync.WaitGroup
	for i := range 8 {
		racers.Go(func() {
			switch err := files.Create(t.Context(), path, []int{i, i}); {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
			if pair, err := files.Read[[]int](t.Context(), path); err != nil || len(pair) != 2 || pair[0] != pair[1] {
				t.Errorf("read %v, %v", pair, err)
			}
		})
	}
	racers.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil || made.Load() != 1 || len(entries) != 1 {
		t.Fatalf("%d made, %v, %v", made.Load(), entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: others can read it", info.Mode(), err)
	}
}

func TestEndedContextsMakeNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	_, read := files.Read[int](ctx, path)
	if err := files.Create(ctx, path, 1); !errors.Is(err, context.Canceled) || !errors.Is(read, context.Canceled) {
		t.Errorf("%v, %v", err, read)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestClasses(t *testing.T) {
	_, missing := files.Read[int](t.Context(), filepath.Join(t.TempDir(), "none"))
	for class, err := range map[error]error{
		provider.ErrNotFound: missing, provider.ErrPermissionDenied: fs.ErrPermission, provider.ErrUnavailable: context.Canceled,
	} {
		if got := files.Classify("read a", err); provider.Class(got) != class || !errors.Is(got, err) {
			t.Errorf("%v is %v", err, got)
		}
	}
	if err := files.Classify("read a", nil); err != nil {
		t.Error(err)
	}
}
