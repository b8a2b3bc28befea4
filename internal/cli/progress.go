// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

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
	return &shown{w: a.Stderr, draw: asTerminal(a.Stderr) != nil && os.Getenv("TERM") != "dumb"}
}

type silent struct{}

func (silent) say(string, ...any)    {}
func (silent) update(string, string) {}
func (silent) done()                 {}

// shown keeps one line up to date on a terminal that it may draw on, else it writes one
// line for each state.
type shown struct {
	w    io.Writer
	draw bool

	mu    sync.Mutex
	last  string // key of the last state
	ended bool
}

const clearLine = "\r\x1b[K"

func (s *shown) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draw {
		format = clearLine + strings.ReplaceAll(format, "\n", "\r\n") + "\r"
	}
	fmt.Fprintf(s.w, format+"\n", args...)
}

func (s *shown) update(key, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draw && !s.ended:
		io.WriteString(s.w, clearLine+text)
	case !s.draw && key != s.last: // numbers would only flood a log
		fmt.Fprintln(s.w, text)
	}
	s.last = key
}

func (s *shown) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draw && !s.ended {
		io.WriteString(s.w, clearLine)
	}
	s.ended = true
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

// showLayers turns the layers of a pull into progress.
func showLayers(p progress) func(registry.Layer) {
	var mu sync.Mutex
	var layers []registry.Layer
	return func(l registry.Layer) {
		mu.Lock()
		defer mu.Unlock()
		i := slices.IndexFunc(layers, func(other registry.Layer) bool { return other.Digest == l.Digest })
		if i < 0 {
			i, layers = len(layers), append(layers, l)
		}
		layers[i] = l
		var done, size int64
		for _, l := range layers {
			done, size = done+l.Done, size+l.Size
		}
		p.update("pull", fmt.Sprintf("pulling the image to this host: %s of %s", humanSize(done), humanSize(size)))
	}
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
