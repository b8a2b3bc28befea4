// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// progress shows the user how far a pod is.
type progress interface {
	// say is a lasting line.
	say(format string, args ...any)
	// update is a state that the next one replaces. Where lines last, only the
	// first of each key is shown.
	update(key, text string)
	// done ends the display: what follows belongs to the container.
	done()
}

func (a *App) newProgress(quiet bool) progress {
	if quiet {
		return &shown{w: io.Discard}
	}
	return &shown{w: a.Stderr, draw: asTerminal(a.Stderr) != nil && os.Getenv("TERM") != "dumb"}
}

// shown keeps what it says last, and for how many seconds, up to date on a terminal that it may draw on, without
// colours; else it writes one line for each state.
type shown struct {
	w    io.Writer
	draw bool

	mu    sync.Mutex
	last  string // key of the last state
	text  string
	since time.Time   // when its key was new
	drawn time.Time   // when it was drawn
	again *time.Timer // draws it again, with its seconds
	ended bool
}

// drawPause is the least time between two states of one key that are drawn.
const drawPause = 100 * time.Millisecond

// Sequences of terminals. What is drawn is cut at the end of the line, since the rest of one that wraps could not be erased.
const (
	eraseLine = "\r\x1b[K"
	cut       = "\x1b[?7l"
	wrap      = "\x1b[?7h"
)

func (s *shown) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf(format, args...) + "\n"
	if s.draw {
		text = eraseLine + strings.ReplaceAll(text, "\n", "\r\n")
	}
	io.WriteString(s.w, text)
	s.redraw()
}

func (s *shown) update(key, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draw && key != s.last { // numbers would only flood a log, and a bar would not move there
		line, _, _ := strings.Cut(text, " [")
		fmt.Fprintln(s.w, line)
	}
	if key != s.last {
		s.since, s.drawn = time.Now(), time.Time{}
	}
	s.last, s.text = key, text
	if time.Since(s.drawn) > drawPause {
		s.redraw()
	}
}

// redraw draws the state in the cursor's line, and again each second.
func (s *shown) redraw() {
	if !s.draw || s.ended || s.text == "" {
		return
	}
	text := s.text
	if seconds := int(time.Since(s.since).Seconds()); seconds > 0 {
		text += fmt.Sprintf(" (%d s)", seconds)
	}
	io.WriteString(s.w, eraseLine+cut+text+wrap)
	s.drawn = time.Now()
	if s.again != nil {
		s.again.Stop()
	}
	s.again = time.AfterFunc(time.Second, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.redraw()
	})
}

func (s *shown) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draw && !s.ended {
		io.WriteString(s.w, eraseLine)
	}
	s.ended = true
}

// arrived says how much of an image is there; the bar is for a terminal, 20 columns wide.
func arrived(text string, done, total int64) string {
	const width = 20
	if total <= 0 {
		return text
	}
	part := float64(done) / float64(total) // both may be a guest's word
	full := int(max(0, min(1, part)) * width)
	return fmt.Sprintf("%s: %s of %s [%s%s]", text, humanSize(done), humanSize(total), strings.Repeat("=", full), strings.Repeat(" ", width-full))
}

// show turns events of a pod into progress.
func show(p progress, booting string) func(podclient.Event) {
	return func(e podclient.Event) {
		text := ""
		switch e.Stage {
		case podclient.StageBooting:
			text = booting
		case podclient.StageConnected:
			text = fmt.Sprintf("connected to the VM after %d ms", e.Elapsed.Milliseconds())
		case podclient.StagePulling:
			text = arrived("pulling the image", e.Done, e.Total)
		case podclient.StageStarted:
			text = fmt.Sprintf("started after %d ms", e.Elapsed.Milliseconds())
		}
		p.update(string(e.Stage), text)
	}
}

// sayWaiting is for a store that another process changes.
func sayWaiting(p progress) func() {
	return func() { p.say("waiting for another outrigger that changes the images of this host") }
}

// showPull turns the progress of a pull to this host into ours.
func showPull(p progress) func(v1.Update) {
	return func(u v1.Update) { p.update("pull", arrived("pulling the image to this host", u.Complete, u.Total)) }
}

func humanSize(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, exp := float64(n)/unit, 0
	for ; value >= unit && exp < 3; exp++ {
		value /= unit
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[exp])
}
