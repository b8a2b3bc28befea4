// SPDX-License-Identifier: Apache-2.0

package stand

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
)

// Session stands in for a test where a developer plays: what a test would have
// removed at its end is removed by Finish. One goroutine at a time may use it.
type Session struct {
	// What is not implemented here is not called.
	testing.TB
	// Stderr is where complaints go.
	Stderr io.Writer

	name     string
	ctx      context.Context
	cleanups []func()
	failed   bool
}

// NewSession returns one that complains under that name.
func NewSession(ctx context.Context, name string) *Session {
	return &Session{Stderr: os.Stderr, name: name, ctx: ctx}
}

// fatal unwinds the stack after Fatal.
type fatal struct{}

// Try reports whether f ran to its end.
func (s *Session) Try(f func()) (ok bool) {
	defer func() {
		switch r := recover(); r.(type) {
		case nil:
		case fatal:
			ok = false
		default:
			panic(r)
		}
	}()
	f()
	return true
}

// Finish removes what there is, in reverse order.
func (s *Session) Finish() {
	for _, f := range slices.Backward(s.cleanups) {
		s.Try(f)
	}
}

func (s *Session) Helper()                  {}
func (s *Session) Name() string             { return s.name }
func (s *Session) Context() context.Context { return s.ctx }
func (s *Session) Cleanup(f func())         { s.cleanups = append(s.cleanups, f) }
func (s *Session) Failed() bool             { return s.failed }
func (s *Session) Log(args ...any)          { fmt.Fprintln(s.Stderr, args...) }
func (s *Session) Logf(f string, a ...any)  { fmt.Fprintf(s.Stderr, f+"\n", a...) }

func (s *Session) TempDir() string {
	dir, err := os.MkdirTemp("", "outrigger-"+s.name+"-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (s *Session) Error(args ...any) {
	s.failed = true
	s.Log(append([]any{s.name + ":"}, args...)...)
}

func (s *Session) Errorf(f string, a ...any) { s.Error(fmt.Sprintf(f, a...)) }

func (s *Session) Fatal(args ...any) {
	s.Error(args...)
	panic(fatal{})
}

func (s *Session) Fatalf(f string, a ...any) { s.Fatal(fmt.Sprintf(f, a...)) }
func (s *Session) Skip(args ...any)          { s.Fatal(args...) }
func (s *Session) Skipf(f string, a ...any)  { s.Fatalf(f, a...) }
