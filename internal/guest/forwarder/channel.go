// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/outrigger/outrigger/internal/ttrpcframe"
)

// handshakeTimeout bounds the TLS handshake of a client.
const handshakeTimeout = 30 * time.Second

// handle joins one connection of the node with one of its own to the agent.
func (f *Forwarder) handle(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	log := f.log.With("peer", conn.RemoteAddr())
	secure, err := f.handshake(ctx, ttrpcframe.RawIO(conn))
	if err != nil {
		log.Warn("refused a connection", "error", err)
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
	records := &gather{Conn: conn}
	secure := tls.Server(records, f.TLS)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return &secureConn{Conn: secure, records: records}, nil
}

// wants names the calls that intercept changes or logs.
func (f *Forwarder) wants(service, method []byte) bool {
	if string(service) != agentService {
		return false
	}
	switch string(method) {
	case "CreateContainer", "CreateSandbox", "DestroySandbox":
		return true
	}
	return false
}
