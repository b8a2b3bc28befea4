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
	remark   string
	take     func(document []byte) error
	// stop ends what waits for a client.
	stop context.CancelFunc

	mu       sync.Mutex
	greeting []net.Conn // in their handshake, the oldest first

	// taking is held while a document is judged; taken reports whether one was taken.
	taking sync.Mutex
	taken  bool
}

// Receive returns nil when take has returned nil for one document and its sender was
// told. remark, unless it is empty, goes with the answer that the VM waits. take is called with one document at a time; its error is the answer to the sender.
// The listener is closed when Receive returns, and before the sender has its answer: its
// port is free. config is that of the VM's end, see podtls.ServerConfig. Errors: the cause
// for which ctx ended; a listener that fails.
func Receive(ctx context.Context, listener net.Listener, config *tls.Config, remark string, take func(document []byte) error) error {
	waiting, stop := context.WithCancel(ctx)
	defer context.AfterFunc(waiting, func() { listener.Close() })()
	r := &receiver{listener: listener, config: onlyTLS13(config), remark: remark, take: take, stop: stop}
	var handlers sync.WaitGroup
	err := r.accept(func(conn net.Conn) { handlers.Go(func() { r.handle(waiting, conn) }) })
	listener.Close()
	stop()
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

// handle serves one client. When waiting ends it reads no more, but still answers.
func (r *receiver) handle(waiting context.Context, raw net.Conn) {
	conn := tls.Server(wholeConn{raw}, r.config)
	defer conn.Close()
	raw.SetDeadline(time.Now().Add(exchangeTimeout))
	defer context.AfterFunc(waiting, func() { raw.SetReadDeadline(time.Unix(1, 0)) })()
	if r.handshake(waiting, raw, conn) != nil {
		return
	}
	answer := r.answer(io.ReadAll(io.LimitReader(conn, cloudinit.MaxSize+1)))
	io.WriteString(conn, answer[:min(len(answer), maxAnswer)])
}

func (r *receiver) handshake(ctx context.Context, raw net.Conn, conn *tls.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	r.mu.Lock()
	r.greeting = append(r.greeting, raw)
	if len(r.greeting) > maxHandshakes {
		r.greeting[0].Close()
		r.greeting = r.greeting[1:]
	}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.greeting = slices.DeleteFunc(r.greeting, func(c net.Conn) bool { return c == raw })
	}()
	return conn.HandshakeContext(ctx)
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
		if r.remark != "" {
			return answerRemark + r.remark
		}
		return answerWaiting
	default:
		err = r.take(document)
	}
	if err != nil {
		return err.Error()
	}
	r.taken = true
	r.listener.Close()
	r.stop()
	return answerTaken
}
