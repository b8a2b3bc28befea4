// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// session stands in for a test: what a test would have removed at its end is
// removed at the end of the session.
type session struct {
	// What is not implemented here is not called.
	testing.TB
	ctx      context.Context
	cleanups []func()
	failed   bool
}

// fatal unwinds the stack after Fatal.
type fatal struct{}

// try says whether f ran to its end.
func (s *session) try(f func()) (ok bool) {
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

func (s *session) finish() {
	for _, f := range slices.Backward(s.cleanups) {
		s.try(f)
	}
}

func (s *session) Helper()                  {}
func (s *session) Name() string             { return "cluster" }
func (s *session) Context() context.Context { return s.ctx }
func (s *session) Cleanup(f func())         { s.cleanups = append(s.cleanups, f) }
func (s *session) Failed() bool             { return s.failed }
func (s *session) Log(args ...any)          { fmt.Fprintln(os.Stderr, args...) }
func (s *session) Logf(f string, a ...any)  { fmt.Fprintf(os.Stderr, f+"\n", a...) }

func (s *session) TempDir() string {
	dir, err := os.MkdirTemp("", "outrigger-cluster-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (s *session) Error(args ...any) {
	s.failed = true
	s.Log(append([]any{"cluster:"}, args...)...)
}

func (s *session) Errorf(f string, a ...any) { s.Error(fmt.Sprintf(f, a...)) }

func (s *session) Fatal(args ...any) {
	s.Error(args...)
	panic(fatal{})
}

func (s *session) Fatalf(f string, a ...any) { s.Fatal(fmt.Sprintf(f, a...)) }
func (s *session) Skip(args ...any)          { s.Fatal(args...) }
func (s *session) Skipf(f string, a ...any)  { s.Fatalf(f, a...) }

// folder is what a developer uses of the cluster.
type folder struct {
	t     *session
	dir   string
	files []string
}

func (f *folder) path(name string) string {
	path := filepath.Join(f.dir, name)
	f.files = append(f.files, path)
	return path
}

func (f *folder) write(name string, mode os.FileMode, text string) {
	path := f.path(name)
	os.Remove(path) // a mode is only for a new file
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		f.t.Fatal(err)
	}
}

// remove leaves what others have put into the folder.
func (f *folder) remove() {
	for _, path := range f.files {
		os.Remove(path)
	}
	os.Remove(f.dir)
}
