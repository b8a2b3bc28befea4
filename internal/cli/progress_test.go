// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// screen is what a terminal shows of what was written to it, of the sequences that progress writes.
func screen(t *testing.T, written string) []string {
	t.Helper()
	lines, at, column := []string{""}, 0, 0
	for written != "" {
		switch rest, sequence := strings.CutPrefix(written, "\x1b["); {
		case strings.HasPrefix(written, "\r"):
			column, written = 0, written[1:]
		case strings.HasPrefix(written, "\n"):
			if at++; at == len(lines) {
				lines = append(lines, "")
			}
			written = written[1:]
		case sequence && strings.HasPrefix(rest, "K"):
			lines[at], written = lines[at][:column], rest[1:]
		case sequence && (strings.HasPrefix(rest, "?7l") || strings.HasPrefix(rest, "?7h")): // whether lines wrap
			written = rest[3:]
		case sequence:
			t.Fatalf("unknown sequence in %q", written)
		default:
			lines[at] = lines[at][:column] + written[:1] + lines[at][min(column+1, len(lines[at])):]
			column, written = column+1, written[1:]
		}
	}
	return lines
}

// TestProgressOnATerminal: seconds go on by themselves, lasting lines stay, and at the end nothing is left of it.
func TestProgressOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &bytes.Buffer{}
		p := &shown{w: out, draw: true}
		sees := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			if diff := cmp.Diff(want, screen(t, out.String())); diff != "" {
				t.Errorf("%s: %s", what, diff)
			}
		}
		on := show(p, "booting a VM (qemu)")
		on(podclient.Event{Stage: podclient.StageBooting})
		sees("at first", "booting a VM (qemu)")
		time.Sleep(2*time.Second + 10*time.Millisecond)
		sees("after two seconds", "booting a VM (qemu) (2 s)")
		p.say("note: a line that stays")
		sees("a line that stays", "note: a line that stays", "booting a VM (qemu) (2 s)")
		on(podclient.Event{Stage: podclient.StagePulling, Done: 512, Total: 1024})
		sees("the guest pulls", "note: a line that stays", "pulling the image: 512 B of 1.0 KiB [==========          ]")
		for _, lie := range []podclient.Event{{Done: -100, Total: 100}, {Done: 6e17, Total: 6e17}, {Done: 9, Total: 1}} { // a guest says it
			lie.Stage = podclient.StagePulling
			on(lie)
		}
		report := showPull(p)
		report(v1.Update{Complete: 50, Total: 300})
		sees("a pull to this host", "note: a line that stays", "pulling the image to this host: 50 B of 300 B [===                 ]")
		report(v1.Update{Complete: 60, Total: 300})
		sees("at once", "note: a line that stays", "pulling the image to this host: 50 B of 300 B [===                 ]")
		time.Sleep(2 * drawPause)
		report(v1.Update{Complete: 100, Total: 300})
		sees("later", "note: a line that stays", "pulling the image to this host: 100 B of 300 B [======              ]")
		p.done()
		sees("the end", "note: a line that stays", "")
	})
}

// TestProgressWithoutATerminal: one line for each state, without sequences and numbers that change.
func TestProgressWithoutATerminal(t *testing.T) {
	t.Setenv("TERM", "dumb")
	out := &bytes.Buffer{}
	p := (&App{Stderr: out}).newProgress(false)
	report := showPull(p)
	for done := range int64(100) {
		report(v1.Update{Complete: done, Total: 100})
	}
	p.say("end")
	p.done()
	if want := "pulling the image to this host: 0 B of 100 B\nend\n"; out.String() != want {
		t.Errorf("%q, want %q", out, want)
	}
	out.Reset()
	p = (&App{Stderr: out}).newProgress(true)
	showPull(p)(v1.Update{Complete: 1, Total: 1})
	p.say("end")
	if out.Len() > 0 {
		t.Errorf("--quiet says %q", out)
	}
}
