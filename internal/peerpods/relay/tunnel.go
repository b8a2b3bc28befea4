// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/peerpods/frametunnel"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// errNoTunnel means that the VM agrees on no encrypted tunnel. Asking again is pointless.
var errNoTunnel = errors.New("the pod VM knows no encrypted tunnel (tunnel type tls), and without one nothing is sent: use a VM image of this version of Outrigger, or set TUNNEL_TYPE=vxlan on the node")

// takeFrames returns the packet socket of the sandbox's tunnel; nil if that is not encrypted.
func (s *sandbox) takeFrames(ctx context.Context) (*os.File, error) {
	if s.request.FramesPath == "" {
		return nil, nil
	}
	frames, err := frametunnel.Take(ctx, s.request.FramesPath)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return frames, nil
}

// openTunnel makes the first connection for frames, and keeps one until the sandbox ends.
// frames, if there are any, are then closed, as they are with an error.
func (s *sandbox) openTunnel(ctx context.Context, frames *os.File) error {
	if frames == nil {
		return nil
	}
	conn, err := s.target.connectFrames(ctx)
	if err != nil {
		frames.Close()
		return status.Errorf(codes.FailedPrecondition, "tunnel to %s: %v", s.request.Address, err)
	}
	s.log.Info("the encrypted tunnel is up")
	s.work.Go(func() {
		defer frames.Close()
		s.carry(frames, conn)
	})
	return nil
}

// carry has a new connection for each that ends. Meanwhile frames wait in the packet
// socket's buffer, and are dropped when that is full; the pod's connections go on.
func (s *sandbox) carry(frames *os.File, conn *podtls.Conn) {
	for pause := firstPause; ; pause = min(pause*2, lastPause) {
		if conn != nil {
			began := time.Now()
			err := frametunnel.Carry(s.ctx, frames, conn)
			if time.Since(began) > lastPause {
				pause = firstPause
			}
			if s.ctx.Err() == nil {
				s.log.Warn("the connection of the encrypted tunnel ended; making another", "error", err)
			}
		}
		if poll.Sleep(s.ctx, pause) != nil {
			return
		}
		var err error
		if conn, err = s.target.connectFrames(s.ctx); err != nil {
			s.log.Debug("no connection for the encrypted tunnel", "error", err)
		}
	}
}

// connectFrames connects for frames. It fails with [errNoTunnel] unless the VM takes the
// connection as one of an encrypted tunnel.
func (t *target) connectFrames(ctx context.Context) (*podtls.Conn, error) {
	config := t.tls.Clone()
	config.NextProtos = []string{frametunnel.Protocol}
	conn, err := t.dialWithin(ctx, lastAttempt)
	if err != nil {
		return nil, err
	}
	secure := podtls.Client(conn, config)
	ctx, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	if secure.ConnectionState().NegotiatedProtocol != frametunnel.Protocol {
		secure.Close()
		return nil, errNoTunnel
	}
	return secure, nil
}
