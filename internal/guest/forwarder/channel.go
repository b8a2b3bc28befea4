// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/outrigger/outrigger/internal/peerpods/frametunnel"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/internal/peerpods/ttrpcframe"
)

const (
	// handshakeTimeout bounds the TLS handshake of a client.
	handshakeTimeout = 5 * time.Second
	// nodeClients and otherClients are how many connections at once may be in
	// their handshake, which takes 30 KiB, or without TLS be open at all: anybody
	// on the network can begin one, and must not keep the node out.
	nodeClients, otherClients = 64, 16
	// refusalPause is between two log lines about connections that are refused.
	refusalPause = 10 * time.Second
)

// handshakeLimiter limits how many connections are in their handshake.
type handshakeLimiter struct {
	node         netip.Addr
	nodes, other chan struct{}

	refused atomic.Int64 // since the last line in the log
	logs    rate.Sometimes
}

func newHandshakeLimiter(node netip.Addr) *handshakeLimiter {
	return &handshakeLimiter{
		node: node.Unmap(), nodes: make(chan struct{}, nodeClients), other: make(chan struct{}, otherClients),
		logs: rate.Sometimes{Interval: refusalPause},
	}
}

// enter returns nil when too many connections are in their handshake, else a
// function to call when this one has finished it.
func (d *handshakeLimiter) enter(peer net.Addr) (leave func()) {
	slots := d.other
	if from, err := netip.ParseAddrPort(peer.String()); err == nil && d.node.IsValid() && from.Addr().Unmap() == d.node {
		slots = d.nodes
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }
	default:
		return nil
	}
}

// logRefusal logs a refusal, with the number of those since the last line.
func (d *handshakeLimiter) logRefusal(log *slog.Logger, err error) {
	d.refused.Add(1)
	d.logs.Do(func() { log.Warn("refused a connection", "error", err, "refused", d.refused.Swap(0)) })
}

var errCrowded = errors.New("too many connections are in their handshake")

// handle joins one connection of the node with one of its own to the agent.
func (f *Forwarder) handle(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	log := f.log.With("peer", conn.RemoteAddr())
	leave := f.handshakes.enter(conn.RemoteAddr())
	if leave == nil {
		f.handshakes.logRefusal(log, errCrowded)
		return
	}
	secure, err := f.handshake(ctx, ttrpcframe.RawIO(conn))
	if f.TLS == nil {
		defer leave()
	} else {
		leave()
	}
	if err != nil {
		f.handshakes.logRefusal(log, err)
		return
	}
	if tunnel, is := secure.(*podtls.Conn); is && tunnel.ConnectionState().NegotiatedProtocol == frametunnel.Protocol {
		if err := f.tunnel.carry(ctx, tunnel); err != nil {
			log.Warn("the connection of the encrypted tunnel ended", "error", err)
		}
		return
	}
	backend, err := f.dialAgent(ctx)
	if err != nil {
		log.Error("the agent cannot be reached", "error", err)
		return
	}
	defer backend.Close()
	proxy := ttrpcframe.Proxy{Wants: f.wants, Intercept: f.intercept}
	if err := proxy.Run(ctx, secure, ttrpcframe.RawIO(backend)); err != nil {
		log.Warn("connection ended", "error", err)
	}
}

func (f *Forwarder) handshake(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if f.TLS == nil {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	secure := podtls.Server(conn, f.TLS)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return secure, nil
}

// wants names the calls that intercept changes, refuses or logs.
func (f *Forwarder) wants(service, method []byte) bool {
	if string(service) == guestService {
		return f.Kata != nil
	}
	switch string(method) {
	case "CreateContainer", "RemoveContainer", "CreateSandbox", "DestroySandbox":
		return string(service) == agentService
	case "CopyFile":
		return string(service) == agentService && !f.opensSealed()
	}
	return false
}
