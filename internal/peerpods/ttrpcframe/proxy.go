// SPDX-License-Identifier: Apache-2.0

package ttrpcframe

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Interceptor may change the argument of a request. If it fails, the caller gets the
// error, with its gRPC status if it has one, and nothing is forwarded; the
// connection goes on.
type Interceptor func(ctx context.Context, service, method string, argument []byte) ([]byte, error)

// Proxy joins a client's connection with a server's.
type Proxy struct {
	// Wants returns the methods for which Intercept is called; others pass
	// without being decoded, also while Intercept takes its time. Nil means none.
	Wants     func(service, method []byte) bool
	Intercept Interceptor
	// Calls, if not nil, counts requests.
	Calls *atomic.Int64
	// Used says how many calls were made on the server's connection before, see [Call].
	Used uint32
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
	// atOnce is how many requests may be with Intercept; further ones wait, and what comes after them.
	atOnce = 32
)

// Run passes frames both ways until one side ends, then closes both and returns
// why: nil when a side closed between two frames or ctx ended. Requests of one
// connection are forwarded in their order, except for those that Intercept holds up, and a
// slow reader holds its writer back.
func (p *Proxy) Run(ctx context.Context, client, server net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { client.Close(); server.Close() })
	defer stop()

	toClient := &lockedWriter{w: client}
	toServer := &streams{w: server, next: 1 + 2*p.Used, opened: map[uint32]uint32{}, ids: map[uint32]uint32{}}
	var wg sync.WaitGroup
	var downErr error
	wg.Go(func() {
		downErr = toServer.replies(toClient, server)
		// The server is gone: no further request gets a reply.
		cancel()
	})
	upErr := p.requests(ctx, client, toServer, toClient)
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
func (p *Proxy) requests(ctx context.Context, client net.Conn, toServer *streams, toClient *lockedWriter) error {
	reader := NewReader(bufio.NewReaderSize(client, requestBuffer))
	var held sync.WaitGroup
	defer held.Wait()
	slots := make(chan struct{}, atOnce)
	for {
		frame, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if frame.Type() == TypeRequest && p.Calls != nil {
			p.Calls.Add(1)
		}
		if frame.Type() != TypeRequest || !p.wants(frame) {
			if err := toServer.write(frame); err != nil {
				return err
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		frame = bytes.Clone(frame)
		held.Go(func() {
			defer func() { <-slots }()
			inTime, cancel := withDeadline(ctx, frame)
			defer cancel()
			changed, err := p.request(inTime, frame)
			if err == nil {
				err = inTime.Err()
			}
			if err == nil {
				err = toServer.write(changed)
			} else {
				err = toClient.replyError(frame.Stream(), err)
			}
			if err != nil {
				client.Close() // which ends the reading
			}
		})
	}
}

// withDeadline adds that of the request: what is not ready in time is not passed on, when its client may have removed
// already what it was to make.
func withDeadline(ctx context.Context, request Frame) (context.Context, context.CancelFunc) {
	var asked ttrpc.Request
	if proto.Unmarshal(request.Payload(), &asked) != nil || asked.TimeoutNano <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(asked.TimeoutNano))
}

// wants reports whether a request goes to Intercept. The server refuses what cannot be parsed here.
func (p *Proxy) wants(frame Frame) bool {
	if p.Wants == nil {
		return false
	}
	service, method, err := PeekRequest(frame.Payload())
	return err == nil && p.Wants(service, method)
}

// request returns the frame to forward.
func (p *Proxy) request(ctx context.Context, frame Frame) (Frame, error) {
	service, method, err := PeekRequest(frame.Payload())
	if err != nil {
		return nil, err
	}
	payload, err := RewriteRequest(frame.Payload(), func(argument []byte) ([]byte, error) {
		return p.Intercept(ctx, string(service), string(method), argument)
	})
	if err != nil {
		return nil, err
	}
	return NewFrame(frame.Stream(), frame.Type(), frame.Flags(), payload)
}

// streams gives requests ids of streams on the server's connection, in the order in which they are sent there: a server takes
// only ids that grow, and odd ones (ttrpc PROTOCOL.md).
type streams struct {
	order sync.Mutex // held while one frame is written
	w     io.Writer
	next  uint32

	mu sync.Mutex // never held while something is written: replies go on when the server does not read
	// opened are the client's ids by the server's, and ids the server's by the client's.
	opened, ids map[uint32]uint32
}

func (s *streams) write(frame Frame) error {
	s.order.Lock()
	defer s.order.Unlock()
	if !s.there(frame) {
		return nil // of a stream that has ended: a client may not know that yet
	}
	_, err := s.w.Write(frame)
	return err
}

// there gives a frame the server's id, and reports whether it has a stream.
func (s *streams) there(frame Frame) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	client := frame.Stream()
	switch id, known := s.ids[client]; {
	case frame.Type() == TypeRequest:
		s.opened[s.next], s.ids[client] = client, s.next
		frame.setStream(s.next)
		s.next += 2
	case known:
		frame.setStream(id)
	default:
		return false
	}
	return true
}

// replies forwards what the server sends, until it ends.
func (s *streams) replies(client io.Writer, server net.Conn) error {
	reader := NewReader(bufio.NewReaderSize(server, replyBuffer))
	for {
		frame, err := reader.Next()
		if err != nil {
			return err
		}
		if s.back(frame) {
			if _, err := client.Write(frame); err != nil {
				return err
			}
		}
	}
}

// back gives a frame the client's id, and reports whether that waits for it.
func (s *streams) back(frame Frame) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := frame.Stream()
	client, known := s.opened[id]
	if known && frame.Type() == TypeResponse {
		delete(s.opened, id)
		delete(s.ids, client)
	}
	frame.setStream(client)
	return known
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
