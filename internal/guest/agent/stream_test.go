// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// reading returns a source and the end that a process would write to.
func reading(t *testing.T) (*source, *os.File) {
	t.Helper()
	here, there, err := pipe(true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(here, there) })
	return newSource(here), there
}

func TestSourceBlocksLimitsAndEnds(t *testing.T) {
	s, w := reading(t)
	got := make(chan string)
	go func() {
		data, err := s.read(t.Context(), 3)
		got <- fmt.Sprint(string(data), err)
	}()
	select {
	case early := <-got:
		t.Fatalf("answered %s before there was anything", early)
	case <-time.After(50 * time.Millisecond):
	}
	w.WriteString("hello")
	w.Close()
	if first := <-got; first != "hel<nil>" {
		t.Errorf("first read: %s", first)
	}
	if data, err := s.read(t.Context(), 100); string(data) != "lo" || err != nil {
		t.Errorf("second read: %q, %v", data, err)
	}
	for range 2 {
		if data, err := s.read(t.Context(), 100); len(data) != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %q, %v", data, err)
		}
	}
	if !s.exhausted() {
		t.Error("not over")
	}
}

// TestCancelledReadsLoseNothing gives up reads at random moments while a
// writer counts.
func TestCancelledReadsLoseNothing(t *testing.T) {
	s, w := reading(t)
	var want strings.Builder
	go func() {
		defer w.Close()
		for i := range 20000 {
			fmt.Fprintln(w, i)
			if i%100 == 0 {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}()
	for i := range 20000 {
		fmt.Fprintln(&want, i)
	}
	var got strings.Builder
	cancelled := 0
	for i := 0; ; i++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*20*time.Microsecond)
		data, err := s.read(ctx, 50+i%100)
		cancel()
		got.Write(data)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			cancelled++
		}
	}
	if got.String() != want.String() {
		t.Errorf("%d of %d bytes, or others, with %d reads given up", got.Len(), want.Len(), cancelled)
	}
	if cancelled == 0 {
		t.Error("no read was given up: the test tested nothing")
	}
}

func TestDataTakenForAGivenUpReadGoesToTheNext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// A reader that wins the race for its turn may still be answered.
	for range 1000 {
		s, w := reading(t)
		w.WriteString("data")
		if _, err := s.read(ctx, 100); err == nil {
			continue
		}
		if data, err := s.read(t.Context(), 100); string(data) != "data" || err != nil {
			t.Errorf("%q, %v", data, err)
		}
		return
	}
	t.Error("no read was given up: the test tested nothing")
}

func TestCloseWakesAReader(t *testing.T) {
	s, _ := reading(t)
	done := make(chan error)
	go func() {
		_, err := s.read(t.Context(), 1)
		done <- err
	}()
	time.Sleep(10 * time.Millisecond)
	s.close()
	if err := <-done; !errors.Is(err, io.EOF) {
		t.Errorf("reader got %v", err)
	}
}

func TestBackPressure(t *testing.T) {
	s, w := reading(t)
	wrote := make(chan struct{})
	data := bytes.Repeat([]byte("x"), 1<<20)
	go func() {
		defer close(wrote)
		w.Write(data)
		w.Close()
	}()
	select {
	case <-wrote:
		t.Fatal("a megabyte was taken from a process that nobody reads from")
	case <-time.After(50 * time.Millisecond):
	}
	n := 0
	for {
		chunk, err := s.read(t.Context(), 32768)
		if err != nil {
			break
		}
		n += len(chunk)
	}
	<-wrote
	if n != len(data) {
		t.Errorf("%d bytes", n)
	}
}

func TestSinkGivesUpWithItsContext(t *testing.T) {
	here, there, err := pipe(false)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	s := newSink(here, false)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	n, err := s.write(ctx, make([]byte, 1<<20))
	if !errors.Is(err, context.DeadlineExceeded) || n == 0 || n == 1<<20 {
		t.Errorf("wrote %d bytes into a full pipe: %v", n, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.write(t.Context(), make([]byte, 1<<20)); err == nil {
			t.Error("a write into a pipe that was closed meanwhile succeeded")
		}
	})
	time.Sleep(10 * time.Millisecond)
	s.close()
	wg.Wait()
	if _, err := s.write(t.Context(), []byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
}

func TestOOMQueue(t *testing.T) {
	q := newOOMQueue()
	q.saw("a", 1)
	q.saw("a", 1)
	q.saw("b", 2)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		if id, err := q.next(gone); err == nil {
			t.Fatalf("%s was given to nobody", id)
		}
		q.wake() // as a later event would
	}
	for _, want := range []string{"a", "b"} {
		if id, err := q.next(t.Context()); id != want || err != nil {
			t.Errorf("%s, %v, want %s", id, err, want)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if id, err := q.next(short); err == nil {
		t.Errorf("one event too many: %s", id)
	}
}
