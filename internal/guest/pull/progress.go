// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// While a pull moves, the log says so at least every logEvery, and at most
// every logPause: the console is where other things are looked for too.
const (
	logEvery = 2 * time.Second
	logPause = 250 * time.Millisecond
)

// Progress is how far one pull is. Its methods may be called from many
// goroutines.
type Progress struct {
	mu       sync.Mutex
	status   Status
	changed  chan struct{} // closed at the next change
	log      *slog.Logger
	logged   time.Time
	loggedAt int64 // tenths of the total
}

// Status is a moment of a pull. Done and Total are compressed bytes; Total is
// 0 while it is unknown.
type Status struct {
	Done, Total int64
	Finished    bool
}

// NewProgress returns the progress of one call of Pull.
func NewProgress() *Progress { return &Progress{changed: make(chan struct{})} }

// Wait returns as soon as Done differs from seen, the pull is over, or ctx is.
func (p *Progress) Wait(ctx context.Context, seen int64) Status {
	for {
		p.mu.Lock()
		status, changed := p.status, p.changed
		p.mu.Unlock()
		if status.Done != seen || status.Finished {
			return status
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status
		}
	}
}

func (p *Progress) change(fn func(*Status)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(&p.status)
	close(p.changed)
	p.changed = make(chan struct{})
	p.report()
}

func (p *Progress) start(total int64, log *slog.Logger) {
	p.change(func(s *Status) { s.Total, p.log, p.logged = total, log, time.Now() })
}

func (p *Progress) add(n int64) { p.change(func(s *Status) { s.Done += n }) }

func (p *Progress) finish() { p.change(func(s *Status) { s.Finished = true }) }

// report logs each tenth of the way that takes logPause, and every logEvery in
// between.
func (p *Progress) report() {
	if p.log == nil || p.status.Finished || p.status.Total <= 0 {
		return
	}
	tenth := p.status.Done * 10 / p.status.Total
	silence := time.Since(p.logged)
	if silence < logPause || tenth == p.loggedAt && silence < logEvery {
		return
	}
	p.logged, p.loggedAt = time.Now(), tenth
	p.log.Info("pulling", "done", p.status.Done, "total", p.status.Total, "percent", p.status.Done*100/p.status.Total)
}
