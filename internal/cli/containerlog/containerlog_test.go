// SPDX-License-Identifier: Apache-2.0

package containerlog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newLog(t *testing.T, limit int64) (*Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	l, err := Create(path, limit)
	if err != nil {
		t.Fatal(err)
	}
	l.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }
	t.Cleanup(func() { l.Close() })
	return l, path
}

func show(t *testing.T, path string, opts Options) (string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	if err := Print(t.Context(), path, &out, &errs, opts); err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String()
}

func TestOutputIsByteExact(t *testing.T) {
	l, path := newLog(t, 64<<20)
	var want bytes.Buffer
	w := l.Stream("stdout")
	for i := range 3000 {
		chunk := []byte(strings.Repeat(fmt.Sprintf("%d\x00\r", i), i%40) + strings.Repeat("\n", i%3))
		want.Write(chunk)
		w.Write(chunk)
	}
	long := bytes.Repeat([]byte("x"), 100_000)
	want.Write(long)
	w.Write(long)
	l.Stream("stderr").Write([]byte("error\n"))
	out, errs := show(t, path, Options{Tail: -1})
	if out != want.String() || errs != "error\n" {
		t.Errorf("%d bytes of %d, stderr %q", len(out), want.Len(), errs)
	}
}

func TestTailAndTimestamps(t *testing.T) {
	l, path := newLog(t, 1<<20)
	w := l.Stream("stdout")
	for _, part := range []string{"one\ntwo", "-more\nthree\n", "no newline"} {
		w.Write([]byte(part))
	}
	for n, want := range map[int]string{
		-1: "one\ntwo-more\nthree\nno newline", 0: "", 1: "no newline", 2: "three\nno newline", 3: "two-more\nthree\nno newline", 9: "one\ntwo-more\nthree\nno newline",
	} {
		if out, _ := show(t, path, Options{Tail: n}); out != want {
			t.Errorf("tail %d: %q, want %q", n, out, want)
		}
	}
	out, _ := show(t, path, Options{Tail: 3, Timestamps: true})
	if want := "2026-01-02T03:04:05.000000006Z two-more\n2026-01-02T03:04:05.000000006Z three\n2026-01-02T03:04:05.000000006Z no newline"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
}

func TestLogIsBounded(t *testing.T) {
	const limit = 64 << 10
	l, path := newLog(t, limit)
	w := l.Stream("stdout")
	for i := range 5000 {
		fmt.Fprintf(w, "line %d\n", i)
	}
	var size int64
	for _, f := range []string{path, older(path)} {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > limit {
		t.Errorf("%d bytes on disk, limit %d", size, limit)
	}
	out, _ := show(t, path, Options{Tail: -1})
	if !strings.HasSuffix(out, "line 4998\nline 4999\n") || strings.Count(out, "\n") < 300 {
		t.Errorf("%d lines are left, end %q", strings.Count(out, "\n"), out[max(0, len(out)-30):])
	}
}

func TestFollowAcrossRotation(t *testing.T) {
	l, path := newLog(t, 8<<10)
	w := l.Stream("stdout")
	var ended atomic.Bool
	started := make(chan struct{})
	pr := &writer{first: started}
	done := make(chan error)
	w.Write([]byte("line -1\n"))
	go func() {
		done <- Print(t.Context(), path, pr, pr, Options{Tail: -1, Follow: true, Ended: ended.Load})
	}()
	<-started
	var want strings.Builder
	want.WriteString("line -1\n")
	for i := range 300 {
		fmt.Fprintf(w, "line %d\n", i)
		fmt.Fprintf(&want, "line %d\n", i)
		if i%50 == 49 { // let the reader catch up, else lines may rotate away unseen
			for pr.Len() < want.Len() {
				time.Sleep(time.Millisecond)
			}
		}
	}
	ended.Store(true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if pr.String() != want.String() {
		t.Errorf("%d bytes, want %d", pr.Len(), want.Len())
	}
}

// writer is a buffer that two goroutines share.
type writer struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	first chan struct{}
	once  sync.Once
}

func (w *writer) Write(data []byte) (int, error) {
	w.once.Do(func() { close(w.first) })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(data)
}

func (w *writer) Len() int { return len(w.String()) }

func (w *writer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}
