// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

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
	switch {
	case quiet:
		return silent{}
	case asTerminal(a.Stderr) != nil && os.Getenv("TERM") != "dumb":
		return &drawn{w: a.Stderr}
	}
	return &plainProgress{w: a.Stderr}
}

type silent struct{}

func (silent) say(string, ...any)    {}
func (silent) update(string, string) {}
func (silent) done()                 {}

// plainProgress writes one line for each state.
type plainProgress struct {
	mu   sync.Mutex
	w    io.Writer
	last string
}

func (p *plainProgress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// update leaves out the numbers that would only flood a log.
func (p *plainProgress) update(key, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if key != p.last {
		p.last = key
		fmt.Fprintln(p.w, text)
	}
}

func (p *plainProgress) done() {}

// drawn keeps one line up to date.
type drawn struct {
	mu    sync.Mutex
	w     io.Writer
	ended bool
}

const clearLine = "\r\x1b[K"

func (d *drawn) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.w, clearLine+strings.ReplaceAll(format, "\n", "\r\n")+"\r\n", args...)
}

func (d *drawn) update(_, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended {
		io.WriteString(d.w, clearLine+text)
	}
}

func (d *drawn) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended {
		d.ended = true
		io.WriteString(d.w, clearLine)
	}
}

// show turns events of a pod into progress.
func show(p progress, provider string) func(podclient.Event) {
	return func(e podclient.Event) {
		text := ""
		switch e.Stage {
		case podclient.StageBooting:
			text = "booting a VM (" + provider + ")"
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
