// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// serveNames lets pods ask the name server that the machine has. The one of an
// engine's networks is at an address that leads each container to itself: it is
// reached by the machine's own address then.
func serveNames(ctx context.Context, own netip.Addr, log *slog.Logger) error {
	text, err := os.ReadFile(hostResolver)
	if err != nil {
		return err
	}
	pods, local := resolverForPods(string(text), own)
	if local != "" {
		if err := forwardNames(ctx, netip.AddrPortFrom(own, 53).String(), net.JoinHostPort(local, "53"), log); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(podResolver), 0o755); err != nil {
		return err
	}
	return os.WriteFile(podResolver, []byte(pods), 0o644)
}

// resolverForPods returns what is in a pod's resolv.conf, and the first name
// server that only this machine reaches.
func resolverForPods(text string, own netip.Addr) (out, local string) {
	var lines strings.Builder
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			lines.WriteString(line)
			continue
		}
		addr, err := netip.ParseAddr(words[1])
		switch {
		case err != nil || !addr.IsLoopback():
			lines.WriteString(line)
		case local == "":
			local = words[1]
			lines.WriteString("nameserver " + own.String() + "\n")
		}
	}
	return lines.String(), local
}

// nameTimeout is how long a question may be without an answer.
const nameTimeout = 10 * time.Second

// forwardNames hands questions by UDP and TCP on, until ctx ends.
func forwardNames(ctx context.Context, at, to string, log *slog.Logger) error {
	var l net.ListenConfig
	packets, err := l.ListenPacket(ctx, "udp", at)
	if err != nil {
		return err
	}
	streams, err := l.Listen(ctx, "tcp", at)
	if err != nil {
		packets.Close()
		return err
	}
	context.AfterFunc(ctx, func() { packets.Close(); streams.Close() })
	go forwardPackets(ctx, packets, to, log)
	go takeEach(ctx, log, streams.Accept, func(conn net.Conn) { forwardStream(conn, to) })
	return nil
}

// goOn waits a moment after an error that may pass, such as too many open
// files. It is false when ctx has ended.
func goOn(ctx context.Context, err error, log *slog.Logger) bool {
	if ctx.Err() == nil {
		log.Warn("a question for a name could not be taken", "error", err)
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

// questionsAtOnce bounds what a flood of questions takes of the machine.
const questionsAtOnce = 256

// takeEach handles what comes, until ctx ends.
func takeEach[T any](ctx context.Context, log *slog.Logger, next func() (T, error), handle func(T)) {
	slots := make(chan struct{}, questionsAtOnce)
	for {
		one, err := next()
		if err != nil {
			if goOn(ctx, err, log) {
				continue
			}
			return
		}
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			handle(one)
		}()
	}
}

// packet is a question by UDP.
type packet struct {
	question []byte
	from     net.Addr
}

func forwardPackets(ctx context.Context, conn net.PacketConn, to string, log *slog.Logger) {
	next := func() (packet, error) {
		question := make([]byte, 4096)
		size, from, err := conn.ReadFrom(question)
		return packet{question[:size], from}, err
	}
	takeEach(ctx, log, next, func(p packet) {
		if answer := ask(p.question, to); answer != nil {
			conn.WriteTo(answer, p.from)
		}
	})
}

// ask returns nil when there is no answer: who asked asks again.
func ask(question []byte, to string) []byte {
	conn, err := net.DialTimeout("udp", to, nameTimeout)
	if err != nil {
		return nil
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(nameTimeout))
	answer := make([]byte, 65535)
	if _, err := conn.Write(question); err != nil {
		return nil
	}
	size, err := conn.Read(answer)
	if err != nil {
		return nil
	}
	return answer[:size]
}

func forwardStream(conn net.Conn, to string) {
	defer conn.Close()
	server, err := net.DialTimeout("tcp", to, nameTimeout)
	if err != nil {
		return
	}
	defer server.Close()
	deadline := time.Now().Add(nameTimeout)
	conn.SetDeadline(deadline)
	server.SetDeadline(deadline)
	go io.Copy(server, conn) // ends with the connections
	io.Copy(conn, server)
}
