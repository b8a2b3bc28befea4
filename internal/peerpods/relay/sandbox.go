// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/peerpods/ttrpcframe"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	pb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/internal/timeline"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// clientDial bounds the wait of a client for its connection to the VM.
	// Shims give a health check 30 s, so the reason still reaches them.
	clientDial = 20 * time.Second
	// refuseFor is how long calls of a client whose VM is unreachable are
	// refused.
	refuseFor = time.Second
	// spareFor is how long the spare connection may be handed out.
	spareFor = 20 * time.Second
)

// sandbox is one agent socket and its connections.
type sandbox struct {
	request *pb.ServeRequest
	target  *target
	log     *slog.Logger
	clock   clockPace
	calls   atomic.Int64
	// decoding is held while a container's specification, which a user has
	// written a good part of, is decoded: the node's pods share the memory.
	decoding *sync.Mutex

	// ctx ends with the sandbox, and with it all that runs for it.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu         sync.Mutex
	listener   net.Listener
	spare      net.Conn
	spareSince time.Time
	clients    int32
	idleSince  time.Time
	// reached are the steps of reaching the agent; guestClock is unknown if the
	// agent has no timeline.
	reached    []timeline.Step
	guestClock timeline.Clock
}

func newSandbox(request *pb.ServeRequest, target *target, decoding *sync.Mutex, log *slog.Logger) *sandbox {
	ctx, cancel := context.WithCancel(context.Background())
	return &sandbox{request: request, target: target, decoding: decoding, clock: usualClockPace, log: log.With("sandbox", request.Id), ctx: ctx, cancel: cancel}
}

// open waits for the agent and then listens. It ends early with ctx, with the
// sandbox, or after the time-out, if that is not 0.
func (s *sandbox) open(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	frames, err := s.takeFrames(ctx)
	if err != nil {
		return err
	}
	s.log.Info("Trying to establish agent proxy connection to " + s.request.Address)
	conn, reached, err := s.target.await(ctx)
	if err != nil {
		frames.Close()
		if s.ctx.Err() != nil {
			return status.Error(codes.Canceled, "the sandbox was stopped while its VM was dialled")
		}
		return err
	}
	if err := s.openTunnel(ctx, frames); err != nil {
		conn.Close()
		return err
	}
	s.log.Info("established agent proxy connection to " + s.request.Address)
	s.reached = reached
	if err := s.listen(conn); err != nil {
		conn.Close()
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	s.log.Info("agent proxy is ready")
	return nil
}

// listen lets clients in. The first one gets the connection on which the agent has
// replied: another costs an emulated guest a tenth of a second.
func (s *sandbox) listen(conn net.Conn) error {
	listener, err := listenUnix(s.request.SocketPath)
	if err != nil {
		return fmt.Errorf("agent socket: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		listener.Close()
		return errors.New("the sandbox was stopped")
	}
	s.listener, s.idleSince = listener, time.Now()
	s.spare, s.spareSince = conn, time.Now()
	s.log.Info("Listening on " + s.request.SocketPath)
	s.work.Go(func() { s.accept(listener) })
	s.work.Go(func() { s.keepClock(s.clock.first()) })
	return nil
}

// takeSpare returns the spare connection, or nil if there is none any more.
func (s *sandbox) takeSpare() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := s.spare
	s.spare = nil
	if conn != nil && (time.Since(s.spareSince) > spareFor || hungUp(conn)) {
		conn.Close()
		return nil
	}
	return conn
}

func (s *sandbox) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Error("accept on the agent socket", "error", err)
			poll.Sleep(s.ctx, 100*time.Millisecond)
			continue
		}
		s.work.Go(func() { s.handle(conn) })
	}
}

func (s *sandbox) handle(client net.Conn) {
	defer client.Close()
	s.count(1)
	defer s.count(-1)
	proxy := ttrpcframe.Proxy{Wants: wants, Intercept: s.intercept, Calls: &s.calls, Used: 1}
	vm := s.takeSpare()
	if vm == nil {
		proxy.Used = 0
		ctx, cancel := context.WithTimeout(s.ctx, clientDial)
		defer cancel()
		var err error
		if vm, err = s.target.dial(ctx); err != nil {
			s.log.Error("no connection to the VM for a client", "error", err)
			s.refuse(client, err)
			return
		}
	}
	if err := proxy.Run(s.ctx, ttrpcframe.RawIO(client), vm); err != nil && s.ctx.Err() == nil {
		s.log.Warn("a client's connection ended", "error", err)
	}
}

// refuse fails a client's calls with the reason. Stop does not wait for it.
func (s *sandbox) refuse(client net.Conn, cause error) {
	defer context.AfterFunc(s.ctx, func() { client.Close() })()
	cause = status.Errorf(codes.Unavailable, "the pod VM at %s cannot be reached: %v; %s", s.request.Address, cause, advice(cause))
	ttrpcframe.Refuse(client, cause, refuseFor)
}

func (s *sandbox) count(change int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients += change; s.clients == 0 {
		s.idleSince = time.Now()
	}
}

func (s *sandbox) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener != nil
}

func (s *sandbox) describe() *pb.Served {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &pb.Served{Id: s.request.Id, SocketPath: s.request.SocketPath, Address: s.request.Address, Clients: s.clients, Calls: s.calls.Load()}
	if s.clients == 0 {
		d.IdleSinceUnixNano = s.idleSince.UnixNano()
	}
	return d
}

// close ends everything and returns when it has ended.
func (s *sandbox) close() {
	s.cancel()
	s.mu.Lock()
	if s.listener != nil {
		s.listener.Close() // removes the socket as well
	}
	if s.spare != nil {
		s.spare.Close()
		s.spare = nil
	}
	s.mu.Unlock()
	s.work.Wait()
}

// clockPace says how often a VM's clock is set.
type clockPace struct {
	// period is how long the clock of a VM may be wrong after a stop that nobody
	// noticed.
	period time.Duration
	// again is the pause after a call that failed or was late: the VM may have been
	// paused meanwhile, so its clock may be behind.
	again time.Duration
	// late is longer than any call to a running VM takes; attempt bounds one call.
	late, attempt time.Duration
}

var usualClockPace = clockPace{period: 10 * time.Second, again: time.Second, late: time.Second, attempt: 5 * time.Second}

// keepClock sets the VM's clock to the node's time, with any shim: some VMs have
// no clock that runs while they are paused.
func (s *sandbox) keepClock(first time.Duration) {
	for wait := first; poll.Sleep(s.ctx, wait) == nil; {
		began := time.Now()
		err := s.setClock(s.ctx)
		if status.Code(err) == codes.Unimplemented {
			s.log.Debug("the agent in the VM cannot set the clock", "error", err)
			return
		}
		if err != nil && s.ctx.Err() == nil {
			s.log.Debug("could not set the VM's clock", "error", err)
		}
		wait = s.clock.next(err, time.Since(began))
	}
}

// first returns when the clock of a VM that has just booted, and so is right, is
// set for the first time: spread out, so that not all VMs of a node are called at
// once.
func (p clockPace) first() time.Duration { return time.Duration(rand.Int64N(int64(p.period))) }

// next returns how long to wait after a call that took that long.
func (p clockPace) next(err error, took time.Duration) time.Duration {
	if err != nil || took > p.late {
		return p.again
	}
	return p.period
}

func (s *sandbox) setClock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.clock.attempt)
	defer cancel()
	conn, err := s.target.connect(ctx)
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	now := time.Now()
	s.compareClocks(ctx, client) // guests without a timeline have no such call
	_, err = agent.NewAgentServiceClient(client).SetGuestDateTime(ctx, &agent.SetGuestDateTimeRequest{Sec: now.Unix(), Usec: int64(now.Nanosecond() / 1000)})
	return err
}
