// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/internal/peerpods/ttrpcframe"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	pb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/internal/timeline"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// A VM that boots does not answer at first. Short attempts notice early when it
	// does; later ones are longer, for slow networks.
	firstAttempt = 100 * time.Millisecond
	lastAttempt  = 5 * time.Second
	// pause after a refused attempt: the VM is up, its forwarder not yet.
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
	// handshake and healthCheck bound what follows the connect.
	handshake   = 10 * time.Second
	healthCheck = 10 * time.Second
	// maxRefused is how often a certificate may be refused before waiting any
	// longer is pointless.
	maxRefused = 3
	// A VM that is gone is noticed within about a minute, and a network that is
	// down for half of that kills no pod (tcp(7)).
	userTimeout = 60 * time.Second
	keepAlive   = 15 * time.Second
	// retransmitMax bounds the pause between retransmissions, which otherwise
	// doubles: after a break of 27 s the network would be used again only after
	// 51 s, and a shim's health check gives up after 30. Since Linux 6.15.
	retransmitMax = time.Second
)

// target is the VM's end of one sandbox.
type target struct {
	address string
	tls     *tls.Config // nil: plain TCP
}

func newTarget(request *pb.ServeRequest) (*target, error) {
	t := &target{address: request.Address}
	if request.Tls == nil {
		return t, nil
	}
	minimum, err := podtls.ParseVersion(request.Tls.MinVersion)
	if err != nil {
		return nil, err
	}
	suites, err := podtls.ParseCipherSuites(request.Tls.CipherSuites)
	if err != nil {
		return nil, err
	}
	t.tls, err = podtls.ClientConfig(podtls.ClientOptions{
		ServerName: request.Tls.ServerName, CAPEM: request.Tls.CaPem,
		CertPEM: request.Tls.CertPem, KeyPEM: request.Tls.KeyPem,
		SkipVerify: request.Tls.SkipVerify, MinVersion: minimum, CipherSuites: suites,
	})
	if err == nil {
		// Of this VM alone. Each of its clients has a connection, and so has each setting
		// of its clock; certificates and signatures cost an emulated guest 0.1 s.
		t.tls.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	return t, err
}

// await returns when the agent reports that it is serving: the connection on which it
// did, and the steps that led there. Its error holds the last failure and says what to
// check.
func (t *target) await(ctx context.Context) (net.Conn, []timeline.Step, error) {
	began := time.Now()
	attempt, pause, refused := firstAttempt, firstPause, 0
	var last error
	for {
		conn, steps, err := t.check(ctx, attempt)
		if err == nil {
			wait := timeline.Step{Name: "await-vm", Where: timeline.Node, Start: began, End: steps[0].Start}
			return conn, append(steps, wait), nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if isCertificate(err) {
			if refused++; refused >= maxRefused {
				return nil, nil, status.Errorf(codes.Unauthenticated, "%s: %v; the VM at this address is not the one that was booted, or its certificate was changed", t.address, err)
			}
		}
		if poll.Sleep(ctx, pause) != nil {
			return nil, nil, status.Errorf(codes.DeadlineExceeded, "the pod VM at %s did not answer: %v; %s", t.address, last, advice(last))
		}
		attempt, pause = min(attempt*11/10, lastAttempt), min(pause*11/10, lastPause)
	}
}

// check connects and asks for the agent's health. connect limits the TCP handshake. It
// returns the connection, on which one [ttrpcframe.Call] was made, and the steps.
func (t *target) check(ctx context.Context, connect time.Duration) (net.Conn, []timeline.Step, error) {
	var steps []timeline.Step
	began := time.Now()
	done := func(name string) {
		now := time.Now()
		steps = append(steps, timeline.Step{Name: name, Where: timeline.Node, Start: began, End: now})
		began = now
	}
	conn, err := t.dialWithin(ctx, connect)
	if err != nil {
		return nil, nil, err
	}
	done("tcp-connect")
	if conn, err = t.secure(ctx, conn); err != nil {
		return nil, nil, err
	}
	done("tls-handshake")
	if err := checkHealth(ctx, conn); err != nil {
		conn.Close()
		return nil, nil, err
	}
	done("first-reply")
	return conn, steps, nil
}

func checkHealth(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, healthCheck)
	defer cancel()
	var response agent.HealthCheckResponse
	if err := ttrpcframe.Call(ctx, conn, "grpc.Health", "Check", &agent.CheckRequest{}, &response); err != nil {
		return fmt.Errorf("agent health: %w", err)
	}
	if response.Status != agent.HealthCheckResponse_SERVING {
		return fmt.Errorf("agent health is %v", response.Status)
	}
	return nil
}

// dial connects for a client. The VM has answered before, so a failure is temporary
// and is retried until ctx ends.
func (t *target) dial(ctx context.Context) (net.Conn, error) {
	for pause := firstPause; ; pause = min(pause*2, lastPause) {
		conn, err := t.connect(ctx)
		if err == nil || poll.Sleep(ctx, pause) != nil {
			return conn, err
		}
	}
}

func (t *target) connect(ctx context.Context) (net.Conn, error) {
	conn, err := t.dialWithin(ctx, lastAttempt)
	if err != nil {
		return nil, err
	}
	return t.secure(ctx, conn)
}

func (t *target) dialWithin(ctx context.Context, timeout time.Duration) (net.Conn, error) {
	dialer := net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive, Count: 4},
		Control:         setTimeouts,
	}
	conn, err := dialer.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, err
	}
	return ttrpcframe.RawIO(conn), nil
}

// secure makes conn one with TLS if that is wanted, or closes it.
func (t *target) secure(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if t.tls == nil {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	secure := tls.Client(conn, t.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return secure, nil
}

// hungUp reports whether the VM has closed a connection, even if there is unread
// data.
func hungUp(conn net.Conn) bool {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	state := []unix.PollFd{{Events: unix.POLLRDHUP}}
	err = raw.Control(func(fd uintptr) {
		state[0].Fd = int32(fd)
		unix.Poll(state, 0)
	})
	return err != nil || state[0].Revents != 0
}

func setTimeouts(_, _ string, raw syscall.RawConn) error {
	var err error
	return errors.Join(raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
		// Kernels before 6.15 do not know TCP_RTO_MAX_MS.
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, int(retransmitMax.Milliseconds()))
	}), err)
}

// isCertificate reports whether one end rejected the other's certificate.
func isCertificate(err error) bool {
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return true
	}
	var remote *net.OpError
	return errors.As(err, &remote) && remote.Op == "remote error"
}

func advice(err error) string {
	var network net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the VM is up but agent-protocol-forwarder is not: look at the VM's console"
	case errors.As(err, &network) && network.Timeout(), errors.Is(err, syscall.EHOSTUNREACH):
		return "nothing answers there: look at the VM's console, at its address, and at firewalls or security groups between node and VM"
	}
	return "look at the VM's console"
}
