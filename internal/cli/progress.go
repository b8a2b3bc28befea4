// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outrigger/outrigger/internal/cli/registry"
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
		return silent{}
	}
	s := &shown{w: a.Stderr, stopped: make(chan struct{})}
	if f := asTerminal(a.Stderr); f != nil && os.Getenv("TERM") != "dumb" {
		s.draw = true
		s.width = func() int {
			_, columns := (&terminal{out: f}).size()
			return int(columns)
		}
	}
	return s
}

type silent struct{}

func (silent) say(string, ...any)    {}
func (silent) update(string, string) {}
func (silent) done()                 {}

// shown keeps what it says last, and for how many seconds, up to date on a terminal that it may draw on, without
// colours; else it writes one line for each state.
type shown struct {
	w       io.Writer
	draw    bool
	width   func() int // of the terminal; 0 if it is not known
	stopped chan struct{}

	mu     sync.Mutex
	last   string // key of the last state
	text   string
	since  time.Time // when its key was new
	lines  int       // of what is drawn, above the cursor's
	ended  bool
	ticker sync.Once
}

const (
	// eraseDown erases what is drawn from the beginning of the cursor's line on.
	eraseDown = "\r\x1b[J"
	// redrawEvery is how often the seconds are shown.
	redrawEvery = time.Second
)

func (s *shown) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf(format, args...) + "\n"
	if s.draw {
		s.erase()
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	io.WriteString(s.w, text)
	s.redraw()
}

func (s *shown) update(key, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draw && key != s.last { // numbers would only flood a log
		fmt.Fprintln(s.w, text)
	}
	if key != s.last {
		s.since = time.Now()
	}
	s.last, s.text = key, text
	if s.draw && !s.ended {
		s.ticker.Do(func() { go s.tick() })
		s.erase()
		s.redraw()
	}
}

// tick shows the seconds until the display ends.
func (s *shown) tick() {
	for {
		select {
		case <-s.stopped:
			return
		case <-time.After(redrawEvery):
		}
		s.mu.Lock()
		if !s.ended {
			s.erase()
			s.redraw()
		}
		s.mu.Unlock()
	}
}

func (s *shown) erase() {
	if s.lines > 0 {
		fmt.Fprintf(s.w, "\x1b[%dA", s.lines)
	}
	s.lines = 0
	io.WriteString(s.w, eraseDown)
}

// redraw draws the state where the cursor is. Lines are cut, since those that wrap could not be erased.
func (s *shown) redraw() {
	if !s.draw || s.ended || s.text == "" {
		return
	}
	lines := strings.Split(s.text, "\n")
	if seconds := int(time.Since(s.since).Seconds()); seconds > 0 {
		lines[0] += fmt.Sprintf(" (%d s)", seconds)
	}
	for i, line := range lines {
		if width := s.width(); width > 0 && len(line) >= width {
			lines[i] = line[:width-1]
		}
	}
	s.lines = len(lines) - 1
	io.WriteString(s.w, strings.Join(lines, "\r\n"))
}

func (s *shown) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	if s.draw {
		s.erase()
	}
	s.ended = true
	close(s.stopped)
}

// drawn reports whether p draws on a terminal.
func drawn(p progress) bool {
	s, ok := p.(*shown)
	return ok && s.draw
}

// bar is 20 columns wide.
func bar(done, total int64) string {
	const width = 20
	full := int(min(done, total) * width / max(total, 1))
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", width-full) + "]"
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
			text = "pulling the image"
			if e.Total > 0 {
				text += fmt.Sprintf(": %s of %s", humanSize(e.Done), humanSize(e.Total))
				if drawn(p) {
					text += " " + bar(e.Done, e.Total)
				}
			}
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

// Layers that a terminal has bars for at a time, and the least pause between two looks at them.
const (
	mostBars   = 8
	barsPaused = 100 * time.Millisecond
)

// showLayers turns the layers of a pull into progress: their sum, and on a terminal a bar for each that is under way.
func showLayers(p progress) func(registry.Layer) {
	var mu sync.Mutex
	var layers []registry.Layer
	var last time.Time
	return func(l registry.Layer) {
		mu.Lock()
		defer mu.Unlock()
		i := slices.IndexFunc(layers, func(other registry.Layer) bool { return other.Digest == l.Digest })
		if i < 0 {
			i, layers = len(layers), append(layers, l)
		}
		layers[i] = l
		if l.Done < l.Size && time.Since(last) < barsPaused {
			return
		}
		last = time.Now()
		p.update("pull", layersText(layers, drawn(p)))
	}
}

func layersText(layers []registry.Layer, bars bool) string {
	var done, size int64
	var lines []string
	for _, l := range layers {
		done, size = done+l.Done, size+l.Size
		if bars && l.Done > 0 && l.Done < l.Size && len(lines) < mostBars {
			lines = append(lines, fmt.Sprintf("\n%.12s %s %s of %s", l.Digest.Hex, bar(l.Done, l.Size), humanSize(l.Done), humanSize(l.Size)))
		}
	}
	text := "pulling the image to this host"
	if done > 0 {
		text += fmt.Sprintf(": %s of %s", humanSize(done), humanSize(size))
	}
	return text + strings.Join(lines, "")
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
