// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider/cloudinit"
)

const (
	// handshakeTimeout bounds the TLS handshake of a client, exchangeTimeout all of a
	// connection.
	handshakeTimeout = 5 * time.Second
	exchangeTimeout  = 30 * time.Second
	// maxHandshakes is how many connections may be in their handshake, which takes
	// 30 KiB. One more ends the oldest: anybody on the network can begin them and never
	// go on, and the VM does not know from which address its node will come.
	maxHandshakes = 64
	// acceptPause follows a failure to accept (accept(2)): descriptors ran out.
	acceptPause = 20 * time.Millisecond
)

var (
	errTooLarge = fmt.Errorf("the user-data has more than %d bytes", cloudinit.MaxSize)
	errHasPod   = errors.New("this VM has a pod already")
)

// receiver is the VM's end.
type receiver struct {
	listener net.Listener
	config   *tls.Config
	take     func(document []byte) error

	mu     sync.Mutex
	closed bool
	// greeting are connections in their handshake, the oldest first, and open the
	// others.
	greeting, open []net.Conn

	// taking is held while a document is judged; taken reports whether one was taken.
	taking sync.Mutex
	taken  bool
}

// Receive returns nil when take has returned nil for one document and its sender was
// told. take is called with one document at a time; its error is the answer to the sender.
// The listener is closed when Receive returns, and before the sender has its answer: its
// port is free. config is that of the VM's end, see podtls.ServerConfig. Errors: the cause
// for which ctx ended; a listener that fails.
func Receive(ctx context.Context, listener net.Listener, config *tls.Config, take func(document []byte) error) error {
	r := &receiver{listener: listener, config: onlyTLS13(config), take: take}
	stop := context.AfterFunc(ctx, r.close)
	defer stop()
	var handlers sync.WaitGroup
	err := r.accept(func(conn net.Conn) { handlers.Go(func() { r.handle(conn) }) })
	r.close()
	handlers.Wait()
	if r.taken {
		return nil
	}
	return errors.Join(context.Cause(ctx), err)
}

// accept returns nil when the listener was closed.
func (r *receiver) accept(handle func(net.Conn)) error {
	for {
		conn, err := r.listener.Accept()
		switch {
		case err == nil:
			handle(conn)
		case errors.Is(err, net.ErrClosed):
			return nil
		case errors.As(err, new(*os.SyscallError)):
			time.Sleep(acceptPause)
		default:
			return fmt.Errorf("accept: %w", err)
		}
	}
}

// close ends listening and all connections. Senders of a document are told.
func (r *receiver) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.listener.Close()
	for _, conn := range r.greeting {
		conn.Close()
	}
	for _, conn := range r.open {
		conn.SetReadDeadline(time.Unix(1, 0))
	}
}

func (r *receiver) handle(raw net.Conn) {
	conn := tls.Server(wholeConn{raw}, r.config)
	defer conn.Close()
	if !r.enter(raw) {
		return
	}
	defer r.leave(raw)
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	if conn.HandshakeContext(ctx) != nil || !r.greeted(raw) {
		return
	}
	answer := r.answer(io.ReadAll(io.LimitReader(conn, cloudinit.MaxSize+1)))
	io.WriteString(conn, answer[:min(len(answer), maxAnswer)])
}

// enter reports whether a connection may begin its handshake.
func (r *receiver) enter(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || conn.SetDeadline(time.Now().Add(exchangeTimeout)) != nil {
		return false
	}
	r.greeting = append(r.greeting, conn)
	if len(r.greeting) > maxHandshakes {
		r.greeting[0].Close()
		r.greeting = slices.Delete(r.greeting, 0, 1)
	}
	return true
}

// greeted reports whether a connection that has finished its handshake may go on.
func (r *receiver) greeted(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.greeting, conn)
	if i < 0 || r.closed {
		return false
	}
	r.greeting, r.open = slices.Delete(r.greeting, i, i+1), append(r.open, conn)
	return true
}

func (r *receiver) leave(conn net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := func(c net.Conn) bool { return c == conn }
	r.greeting, r.open = slices.DeleteFunc(r.greeting, is), slices.DeleteFunc(r.open, is)
}

// answer judges a document, or an error in reading it.
func (r *receiver) answer(document []byte, err error) string {
	r.taking.Lock()
	defer r.taking.Unlock()
	switch {
	case r.taken:
		err = errHasPod
	case err != nil:
		err = fmt.Errorf("the user-data did not come whole: %w", err)
	case len(document) > cloudinit.MaxSize:
		err = errTooLarge
	case len(document) == 0:
		return answerWaiting
	default:
		err = r.take(document)
	}
	if err != nil {
		return err.Error()
	}
	r.taken = true
	r.close()
	return answerTaken
}
