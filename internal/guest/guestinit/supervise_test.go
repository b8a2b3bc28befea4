// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/guest/reaper"
)

// lineBuffer is a console's device that can be waited for.
type lineBuffer struct {
	mu      sync.Mutex
	text    string
	changed chan struct{}
}

func (l *lineBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += string(p)
	close(l.changed)
	l.changed = make(chan struct{})
	return len(p), nil
}

func (l *lineBuffer) read() (text string, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text, l.changed
}

func testConsole() (*console, *lineBuffer) {
	b := &lineBuffer{changed: make(chan struct{})}
	return &console{w: b}, b
}

// await returns what was written once it holds text n times.
func (l *lineBuffer) await(t *testing.T, text string, n int) string {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		all, changed := l.read()
		if strings.Count(all, text) >= n {
			return all
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%q is not there %d times:\n%s", text, n, all)
		}
	}
}

// startReaper gives the one reaper of the test process: it collects every
// child there is.
var startReaper = sync.OnceValue(func() *reaper.Reaper {
	r := reaper.New()
	go r.Run(context.Background())
	return r
})

func TestReaperGivesEveryStatusToItsOwner(t *testing.T) {
	con, _ := testConsole()
	g := &guest{con: con, reaper: startReaper()}
	var processes []*process
	const n = 50
	for i := range n {
		p, err := g.spawn([]string{"/bin/sh", "-c", "exit " + string(rune('0'+i%10))}, nil)
		if err != nil {
			t.Fatal(err)
		}
		processes = append(processes, p)
	}
	for i, p := range processes {
		select {
		case <-p.Done:
			if p.Code() != i%10 {
				t.Errorf("process %d: exit code %d, want %d", i, p.Code(), i%10)
			}
		case <-time.After(time.Minute):
			t.Fatalf("process %d was never reported", i)
		}
	}
}

func TestOutputComesWithPrefixAndStatus(t *testing.T) {
	con, out := testConsole()
	g := &guest{con: con, reaper: startReaper()}
	p, err := g.spawn([]string{"/bin/sh", "-c", "echo one; echo two >&2; kill -9 $$"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out.await(t, "] sh: one\n", 1)
	out.await(t, "] sh: two\n", 1)
	<-p.Done
	if err := exitError(p.Status); err == nil || err.Error() != "killed by SIGKILL" {
		t.Errorf("got %v", err)
	}
}

func TestServiceIsStartedAgainAndAgain(t *testing.T) {
	con, out := testConsole()
	// A supervisor has no end: it goes with the test process.
	g := &guest{con: con, reaper: startReaper()}
	go g.supervise([]string{"/bin/sh", "-c", "echo up; exit 3"}, "0", nil)
	out.await(t, "] sh: up\n", 3)
	out.await(t, "/bin/sh ended: exit code 3; starting it again in 100ms", 1)
	out.await(t, "/bin/sh ended: exit code 3; starting it again in 200ms", 1)
}

func TestMissingProgramIsAnError(t *testing.T) {
	con, _ := testConsole()
	g := &guest{con: con, reaper: reaper.New()}
	if _, err := g.spawn([]string{"/nonexistent"}, nil); err == nil {
		t.Error("started a program that does not exist")
	}
}
