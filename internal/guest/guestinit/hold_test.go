// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/guest/hold"
	"github.com/outrigger/outrigger/internal/timeline/marks"
)

// TestMain makes the test binary a program that is held, as podvm-guest is.
func TestMain(m *testing.M) {
	if hold.Wait() {
		os.Stdout.WriteString("let go\n")
		return
	}
	os.Exit(m.Run())
}

// TestServicesAreHeld: programs of our own executable are started and held until they
// are supervised. Others would not wait.
func TestServicesAreHeld(t *testing.T) {
	con, out := testConsole()
	g := &guest{con: con, reaper: startReaper(), held: map[string]*process{}}
	own := filepath.Join(t.TempDir(), "own")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, own); err != nil {
		t.Fatal(err)
	}
	g.holdPaths(own, "/bin/true", "/nonexistent")
	p := g.held[own]
	if len(g.held) != 1 || p == nil || p.Ended() {
		text, _ := out.read()
		t.Fatalf("%d programs are held\n%s", len(g.held), text)
	}
	g.holdPaths(own)
	if g.held[own] != p {
		t.Error("a program that is held was started again")
	}
	go g.supervise([]string{own}, "0", p)
	out.await(t, "] own: let go\n", 1)
}

func TestStepsOfAPoolAreNotThoseOfThePod(t *testing.T) {
	g := &guest{took: []mark{{"kernel", 0, time.Second}}}
	for name, want := range map[string]int{"runtime": 2, marks.Handover: 1} {
		to := marks.Marks{Path: filepath.Join(t.TempDir(), "marks")}
		to.Note(name, 0, "")
		g.writeMarks(to)
		if steps := to.Read(); len(steps) != want {
			t.Errorf("after %s: %v", name, steps)
		}
	}
}
