// SPDX-License-Identifier: Apache-2.0

package ttrpcframe

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Interceptor may change the argument of a request. If it fails, the caller gets the
// error, with its gRPC status if it has one, and nothing is forwarded; the
// connection goes on.
type Interceptor func(ctx context.Context, service, method string, argument []byte) ([]byte, error)

// Proxy joins a client's connection with a server's.
type Proxy struct {
	// Wants returns the methods for which Intercept is called; others pass
	// without being decoded. Nil means none.
	Wants     func(service, method []byte) bool
	Intercept Interceptor
	// Calls, if not nil, counts requests.
	Calls *atomic.Int64
	// Shift is added to the ids of streams on the server's connection, where [Call] may
	// have used one: a server takes none twice. It is even, since ids of clients are odd.
	Shift uint32
	// Linger is how long replies may still arrive after the client has closed
	// its side: a killed client looks the same, and a server that hangs would
	// keep its connection for ever. 0 means 10 s.
	Linger time.Duration
}

const (
	// requestBuffer holds a TLS record. Longer frames are read past the buffer.
	requestBuffer = 16 << 10
	// replyBuffer holds a frame with the 32 KiB of output that a shim asks for, so
	// that one read gets it.
	replyBuffer   = 36 << 10
	defaultLinger = 10 * time.Second
)

// Run passes frames both ways until one side ends, then closes both and returns
// why: nil when a side closed between two frames or ctx ended. Requests of one
// connection are forwarded in their order, and a slow reader holds its writer
// back.
func (p *Proxy) Run(ctx context.Context, client, server net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { client.Close(); server.Close() })
	defer stop()

	toClient := &lockedWriter{w: client}
	var wg sync.WaitGroup
	var downErr error
	wg.Go(func() {
		downErr = copyFrames(toClient, server, -p.Shift)
		// The server is gone: no further request gets a reply.
		cancel()
	})
	upErr := p.requests(ctx, client, server, toClient)
	if upErr == nil && closeWrite(server) {
		// The client sends no more, but replies may be on their way to it.
		poll.Sleep(ctx, cmp.Or(p.Linger, defaultLinger))
	}
	cancel()
	client.Close()
	server.Close()
	wg.Wait()
	return errors.Join(ignoreClosed(upErr), ignoreClosed(downErr))
}

// requests forwards what the client sends. It returns nil at end of file.
func (p *Proxy) requests(ctx context.Context, client, server net.Conn, toClient *lockedWriter) error {
	reader := NewReader(bufio.NewReaderSize(client, requestBuffer))
	for {
		frame, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if frame.Type() == TypeRequest {
			if frame, err = p.request(ctx, frame); err != nil {
				if err = toClient.replyError(frame.Stream(), err); err != nil {
					return err
				}
				continue
			}
		}
		frame.shift(p.Shift)
		if _, err := server.Write(frame); err != nil {
			return err
		}
	}
}

// request returns the frame to forward. With an error it returns the given frame, so
// that the caller knows the stream.
func (p *Proxy) request(ctx context.Context, frame Frame) (Frame, error) {
	if p.Calls != nil {
		p.Calls.Add(1)
	}
	if p.Wants == nil {
		return frame, nil
	}
	service, method, err := PeekRequest(frame.Payload())
	if err != nil || !p.Wants(service, method) {
		// The server refuses what cannot be parsed here.
		return frame, nil
	}
	payload, err := RewriteRequest(frame.Payload(), func(argument []byte) ([]byte, error) {
		return p.Intercept(ctx, string(service), string(method), argument)
	})
	if err != nil {
		return frame, err
	}
	changed, err := NewFrame(frame.Stream(), frame.Type(), frame.Flags(), payload)
	if err != nil {
		return frame, err
	}
	return changed, nil
}

func copyFrames(w io.Writer, conn net.Conn, shift uint32) error {
	reader := NewReader(bufio.NewReaderSize(conn, replyBuffer))
	for {
		frame, err := reader.Next()
		if err != nil {
			return err
		}
		frame.shift(shift)
		if _, err := w.Write(frame); err != nil {
			return err
		}
	}
}

// lockedWriter writes whole frames from two goroutines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(frame []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(frame)
}

func (l *lockedWriter) replyError(stream uint32, cause error) error {
	frame, err := ErrorResponse(stream, cause)
	if err != nil {
		return err
	}
	_, err = l.Write(frame)
	return err
}

// closeWrite closes the sending side, so that the peer reads end of file. It returns
// false if the connection cannot: unix, TCP and TLS can.
func closeWrite(conn net.Conn) bool {
	half, ok := conn.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}

// ignoreClosed returns nil for the ordinary ends of a connection.
func ignoreClosed(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Refuse ends every call that comes in on client with cause, until the
// client hangs up or grace has passed, and closes client: the way to tell it
// why there is nobody to talk to.
func Refuse(client net.Conn, cause error, grace time.Duration) {
	defer client.Close()
	client.SetDeadline(time.Now().Add(grace))
	reader, toClient := NewReader(bufio.NewReaderSize(client, requestBuffer)), &lockedWriter{w: client}
	for {
		frame, err := reader.Next()
		if err != nil {
			return
		}
		if frame.Type() == TypeRequest && toClient.replyError(frame.Stream(), cause) != nil {
			return
		}
	}
}
