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
)

// Interceptor may change the argument of a request. An error is answered to
// the caller, with its gRPC status if it has one, and nothing is forwarded;
// the connection goes on.
type Interceptor func(ctx context.Context, service, method string, argument []byte) ([]byte, error)

// Proxy joins a client's connection with a server's.
type Proxy struct {
	// Wants returns the methods for which Intercept is called; others pass
	// without being decoded. Nil means none.
	Wants     func(service, method []byte) bool
	Intercept Interceptor
	// Calls, if not nil, counts requests.
	Calls *atomic.Int64
	// Linger is how long replies may still arrive after the client has closed
	// its side: a killed client looks the same, and a server that hangs would
	// keep its connection for ever. 0 means 10 s.
	Linger time.Duration
}

const (
	// readAhead holds a TLS record. Longer frames are read past the buffer.
	readAhead = 16 << 10
	// answerAhead holds a frame with the 32 KiB of output that a shim asks
	// for, to be read at once.
	answerAhead   = 36 << 10
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

	back := &lockedWriter{w: client}
	var wg sync.WaitGroup
	var downErr error
	wg.Go(func() {
		downErr = copyFrames(back, server)
		// The server is gone: nothing that the client still sends is answered.
		cancel()
	})
	upErr := p.requests(ctx, client, server, back)
	if upErr == nil && closeWrite(server) {
		// The client sends no more, but answers may be on their way to it.
		p.linger(ctx)
	}
	cancel()
	client.Close()
	server.Close()
	wg.Wait()
	return errors.Join(ordinary(upErr), ordinary(downErr))
}

// linger returns when the server has ended, or when it had long enough.
func (p *Proxy) linger(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.Linger, defaultLinger))
	defer cancel()
	<-ctx.Done()
}

// requests forwards what the client sends until its end; nil is end of file.
func (p *Proxy) requests(ctx context.Context, client, server net.Conn, back *lockedWriter) error {
	reader := NewReader(bufio.NewReaderSize(client, readAhead))
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
				if err = back.answer(frame.Stream(), err); err != nil {
					return err
				}
				continue
			}
		}
		if _, err := server.Write(frame); err != nil {
			return err
		}
	}
}

// request returns the frame to forward. With an error it returns the frame it
// was given, so that the caller knows the stream.
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

func copyFrames(w io.Writer, conn net.Conn) error {
	reader := NewReader(bufio.NewReaderSize(conn, answerAhead))
	for {
		frame, err := reader.Next()
		if err != nil {
			return err
		}
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

func (l *lockedWriter) answer(stream uint32, cause error) error {
	frame, err := ErrorResponse(stream, cause)
	if err != nil {
		return err
	}
	_, err = l.Write(frame)
	return err
}

// closeWrite tells the peer that no more comes; unix, TCP and TLS can do that.
func closeWrite(conn net.Conn) bool {
	half, ok := conn.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}

// ordinary ends are not errors.
func ordinary(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
