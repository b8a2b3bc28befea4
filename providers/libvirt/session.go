// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	lv "github.com/digitalocean/go-libvirt"

	"github.com/outrigger/outrigger/provider/kit/keylock"
)

const (
	// callLimit is the longest that the daemon may take over one call. Without
	// it, a daemon that hangs would hold those that set no deadline for ever.
	callLimit = 2 * time.Minute
	// changeGrace is how long a call that changes something is waited for once
	// its context has ended: what it did must be known before it is undone.
	changeGrace = 3 * time.Second
	// brokenGrace is how long a call may take to notice that its connection
	// has broken.
	brokenGrace = time.Second
)

var errBroken = errors.New("the connection to the daemon broke")

// client calls a daemon over one connection, which it opens when it is first
// needed and again whenever it has broken.
type client struct {
	target *target

	// dialing is held, with the key "", by whoever opens a connection.
	dialing keylock.Locks

	mu      sync.Mutex
	current *session
	closed  bool
}

// session is one connection.
type session struct {
	rpc  *lv.Libvirt
	link *link

	mu sync.Mutex
	// calls are those that somebody waits for.
	calls int
	// retired sessions get no new calls and close with the last.
	retired bool
}

// opened is the dialer of a connection that is already there.
type opened struct{ link *link }

func (o opened) Dial() (net.Conn, error) { return o.link, nil }

// acquire returns a connection that works as far as is known, with a call
// counted on it.
func (c *client) acquire(ctx context.Context) (*session, error) {
	unlock, err := c.dialing.Take(ctx, "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	c.mu.Lock()
	current, closed := c.current, c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return nil, fmt.Errorf("%w: the provider was torn down", errBroken)
	case current != nil && current.enter():
		return current, nil
	}
	fresh, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	fresh.enter()
	c.mu.Lock()
	c.current, closed = fresh, c.closed
	c.mu.Unlock()
	if closed {
		fresh.retire()
		fresh.leave()
		return nil, fmt.Errorf("%w: the provider was torn down", errBroken)
	}
	return fresh, nil
}

func (c *client) open(ctx context.Context) (*session, error) {
	conn, err := c.target.dial(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{link: newLink(conn)}
	s.rpc = lv.NewWithDialer(opened{s.link})
	ready := make(chan error, 1)
	go func() { ready <- s.rpc.ConnectToURI(lv.ConnectURI(c.target.driver)) }()
	select {
	case err = <-ready:
		close(ready)
	case <-s.link.broken:
		err = errBroken
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		closeAfter(s.link, ready)
		return nil, fmt.Errorf("open %s at %s (-uri, LIBVIRT_URI): %w", c.target.driver, c.target, err)
	}
	return s, nil
}

// openGrace is how long a connection that nobody wants any more may take to be
// ready.
const openGrace = 250 * time.Millisecond

// closeAfter closes a link when its opening has ended. go-libvirt sets itself
// up in ConnectToURI without a lock, and a link that breaks at that moment is a
// data race; a daemon that does not answer has not got so far.
func closeAfter(l *link, ready <-chan error) {
	select {
	case <-ready:
		l.Close()
		return
	default:
	}
	go func() {
		grace := time.NewTimer(openGrace)
		defer grace.Stop()
		select {
		case <-ready:
		case <-l.broken:
		case <-grace.C:
		}
		l.Close()
	}()
}

// enter counts a call, or says that the session takes no more.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired || s.link.isBroken() {
		return false
	}
	s.calls++
	return true
}

func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls--; s.calls <= 0 && s.retired {
		s.link.Close()
	}
}

func (s *session) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired = true; s.calls <= 0 {
		s.link.Close()
	}
}

// change makes a call that changes something.
func (c *client) change(ctx context.Context, what string, call func(*lv.Libvirt) error) error {
	return c.call(ctx, what, changeGrace, call)
}

func (c *client) call(ctx context.Context, what string, grace time.Duration, call func(*lv.Libvirt) error) error {
	return c.callWithin(ctx, what, callLimit, grace, call)
}

// callWithin runs call, which knows no context, on a goroutine of its own. When the
// context ends first, the session is retired: nobody knows whether the daemon
// will answer again.
func (c *client) callWithin(ctx context.Context, what string, limit, grace time.Duration, call func(*lv.Libvirt) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the daemon did not answer within %v: %w", limit, context.DeadlineExceeded))
	defer cancel()
	s, err := c.acquire(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer s.leave()
	done := make(chan error, 1)
	go func() { done <- call(s.rpc) }()
	return c.explain(what, s.link, s.await(ctx, done, grace))
}

// explain adds what was done to an error, and where the daemon is to one of a broken
// connection.
func (c *client) explain(what string, l *link, err error) error {
	var ofDaemon lv.Error
	switch {
	case err == nil:
		return nil
	case l.isBroken() && !errors.As(err, &ofDaemon):
		return fmt.Errorf("%s: connection to %s (-uri, LIBVIRT_URI): %w", what, c.target, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (s *session) await(ctx context.Context, done <-chan error, grace time.Duration) error {
	select {
	case err := <-done:
		return err
	case <-s.link.broken:
		return waitMore(done, brokenGrace, errBroken)
	case <-ctx.Done():
	}
	err := waitMore(done, grace, errStuck)
	if errors.Is(err, errStuck) {
		s.retire()
		return context.Cause(ctx)
	}
	return err
}

var errStuck = errors.New("no answer")

func waitMore(done <-chan error, limit time.Duration, otherwise error) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return otherwise
	}
}

// close ends the connection; calls that wait get an error.
func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.current != nil {
		c.current.link.Close()
	}
}
