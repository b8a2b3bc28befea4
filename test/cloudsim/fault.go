// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"time"
)

// Fault is one line of the script: what befalls which call.
type Fault struct {
	// Action is a pattern ([path.Match]) of the actions it strikes, such as
	// ec2:RunInstances or ecs:Describe*.
	Action string
	// Skip lets that many calls through first.
	Skip int
	// Times is how often it strikes: 0 means once, below 0 means always.
	Times int
	// Delay passes first, or less if the caller goes away.
	Delay time.Duration
	// GoesOn says that the server does not see that the caller goes away: it
	// does the work when the delay is over.
	GoesOn bool
	// Hold, if any, is waited for in place of the delay, by one call.
	Hold *Hold
	// Code, Status and Message are the cloud's error. An empty Code is none:
	// the fault is the delay or the lost reply.
	Code    string
	Status  int
	Message string
	// After says that the work is done anyway, before the error.
	After bool
	// Drop closes the connection in place of an answer. With After it is a
	// lost reply.
	Drop bool
}

// Hold keeps one call at the server, whether or not its caller goes away.
type Hold struct{ begin, done chan struct{} }

// NewHold returns a hold that nothing has released.
func NewHold() *Hold { return &Hold{make(chan struct{}), make(chan struct{})} }

// Release has the server do the work of the call, and waits until it has.
func (h *Hold) Release() {
	close(h.begin)
	<-h.done
}

// Held keeps a call at the server: what it makes appears with [Hold.Release].
func Held(action string, hold *Hold) Fault { return Fault{Action: action, GoesOn: true, Hold: hold} }

// LostReply does what was asked and loses the answer.
func LostReply(action string) Fault { return Fault{Action: action, After: true, Drop: true} }

// Unreachable loses the request.
func Unreachable(action string) Fault { return Fault{Action: action, Drop: true} }

// Slow delays a call, which then succeeds.
func Slow(action string, delay time.Duration) Fault { return Fault{Action: action, Delay: delay} }

// GoesOn delays a call as Slow does, also when its caller has gone: what it makes
// appears later.
func GoesOn(action string, delay time.Duration) Fault {
	return Fault{Action: action, Delay: delay, GoesOn: true}
}

// Lost drops the connection at once, and the server goes on with the call: what
// it makes appears after the delay.
func Lost(action string, delay time.Duration) Fault {
	return Fault{Action: action, Delay: delay, GoesOn: true, After: true, Drop: true}
}

// Refused returns the cloud's error and does nothing.
func Refused(action string, status int, code string) Fault {
	return Fault{Action: action, Status: status, Code: code, Message: "as the script says"}
}

// Skipping lets n calls through before the fault strikes.
func (f Fault) Skipping(n int) Fault { f.Skip = n; return f }

// Repeated strikes n times; below 0 always.
func (f Fault) Repeated(n int) Fault { f.Times = n; return f }

// Script adds faults. Of several that match a call the first strikes.
func (w *World) Script(faults ...Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range faults {
		if f.Times == 0 {
			f.Times = 1
		}
		w.faults = append(w.faults, &f)
	}
}

// ClearFaults ends all faults.
func (w *World) ClearFaults() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = nil
}

// Called counts a call and returns the fault that strikes it, or nil.
func (w *World) Called(action string) *Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[action]++
	for _, f := range w.faults {
		if match, err := path.Match(f.Action, action); err != nil || !match || f.Times == 0 {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times > 0 {
			f.Times--
		}
		struck := *f
		return &struck
	}
	return nil
}

// Handler puts the script before a server. action names the call that a
// request is; requests for which it returns nothing pass. refuse writes a
// fault's error as the cloud does.
func (w *World) Handler(next http.Handler, action func(*http.Request) string, refuse func(http.ResponseWriter, *http.Request, Fault)) http.Handler {
	return w.taped(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		name := action(r)
		if name == "" {
			next.ServeHTTP(out, r)
			return
		}
		f := w.Called(name)
		if f == nil {
			next.ServeHTTP(out, r)
			return
		}
		// With its body read, a server sees that a caller has gone away.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if f.GoesOn && f.After && f.Drop {
			later := r.Clone(context.WithoutCancel(r.Context()))
			later.Body = r.Body
			time.AfterFunc(f.Delay, func() { next.ServeHTTP(httptest.NewRecorder(), later) })
			panic(http.ErrAbortHandler)
		}
		if f.Hold != nil {
			defer close(f.Hold.done)
			<-f.Hold.begin
		}
		wait(r, *f)
		if f.Code == "" && !f.Drop {
			next.ServeHTTP(out, r)
			return
		}
		if f.After {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		if f.Drop {
			panic(http.ErrAbortHandler)
		}
		refuse(out, r, *f)
	}))
}

func wait(r *http.Request, f Fault) {
	if f.Delay <= 0 {
		return
	}
	gone := r.Context().Done()
	if f.GoesOn {
		gone = nil
	}
	timer := time.NewTimer(f.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-gone:
	}
}

// Calls returns how often each action was called.
func (w *World) Calls() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := make(map[string]int, len(w.calls))
	for action, n := range w.calls {
		calls[action] = n
	}
	return calls
}

// ResetCalls begins counting again.
func (w *World) ResetCalls() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.calls)
}
