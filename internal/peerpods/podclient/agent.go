// SPDX-License-Identifier: Apache-2.0

package podclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"github.com/outrigger/outrigger/internal/timeline"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Attach connects to the agent of a pod that somebody else made, for exec,
// stats or its container's streams. Such a pod has no health check of its own.
func (c *Client) Attach(ctx context.Context, spec PodSpec, agentSocket string) (*Pod, error) {
	spec.HealthInterval = -1
	p, err := c.NewPod(spec)
	if err != nil {
		return nil, err
	}
	p.socket, p.dialTimeout = agentSocket, attachTimeout
	return p, p.Connect(ctx)
}

// attachTimeout is how long the agent of a running pod may take to be dialled;
// its socket is there already, so a short time will do.
const attachTimeout = 2 * time.Second

// Connect dials the agent, checks its health, and watches over it from then on.
// All calls share one connection, as with a shim.
func (p *Pod) Connect(ctx context.Context) error {
	conn, err := dialAgent(ctx, p.socket, p.dialTimeout)
	if err != nil {
		return err
	}
	p.raw = conn
	p.conn = ttrpc.NewClient(conn, ttrpc.WithUnaryClientInterceptor(bounded), ttrpc.WithOnClose(func() { p.markDead(ErrAgentLost) }))
	p.agent = agent.NewAgentServiceClient(p.conn)
	p.health = agent.NewHealthClient(p.conn)
	p.guest = guest.NewGuestClient(p.conn)
	if err := p.CheckHealth(ctx); err != nil {
		p.conn.Close()
		return err
	}
	p.event(StageConnected)
	bg, stop := context.WithCancel(context.Background())
	p.stop = stop
	if p.spec.HealthInterval > 0 {
		go p.watchHealth(bg)
	}
	return nil
}

// dialAgent retries while the relay is not listening yet.
func dialAgent(ctx context.Context, path string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			return conn, nil
		}
		if poll.Sleep(ctx, 20*time.Millisecond) != nil {
			return nil, fmt.Errorf("agent socket: %w", err)
		}
	}
}

// ask makes one call of the pod's agent under a deadline, which also travels to the
// agent. Its error says why the connection broke if it did; what was asked for is the caller's to say. step is kept as
// one of the pod's start, if it is not empty.
func ask[Req, Resp any](
	ctx context.Context, p *Pod, step string, limit time.Duration, call func(context.Context, *Req) (*Resp, error), req *Req,
) (*Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	resp, err := call(ctx, req)
	if err != nil {
		return nil, p.lost(err)
	}
	p.noteCall(step, began)
	return resp, nil
}

// maxCalls bounds what is kept of calls: the first ones are a start's.
const maxCalls = 32

func (p *Pod) noteCall(step string, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if step != "" && len(p.calls) < maxCalls {
		p.calls = append(p.calls, timeline.Step{Name: step, Where: timeline.Node, Start: began, End: time.Now()})
	}
}

// Calls returns how long the calls of the pod's start took, as the node sees them.
func (p *Pod) Calls() []timeline.Step {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// CheckHealth asks the agent once.
func (p *Pod) CheckHealth(ctx context.Context) error {
	resp, err := ask(ctx, p, "", HealthTimeout, p.health.Check, &agent.CheckRequest{})
	if err == nil && resp.Status != agent.HealthCheckResponse_SERVING {
		err = fmt.Errorf("the agent answers %v", resp.Status)
	}
	if err != nil {
		return fmt.Errorf("health check: %w", err)
	}
	return nil
}

func (p *Pod) watchHealth(ctx context.Context) {
	tick := time.NewTicker(p.spec.HealthInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.dead:
			return
		case <-tick.C:
		}
		if err := p.CheckHealth(ctx); err != nil && ctx.Err() == nil {
			p.markDead(fmt.Errorf("%w: %w", ErrAgentLost, err))
			return
		}
	}
}

// oomPause is the least time between two events: a guest can report as often as
// it likes that a container ran out of memory.
const oomPause = 200 * time.Millisecond

// watchOOM keeps one GetOOMEvent open, as the shim does from the first
// container on. Reports about unknown containers are ignored.
func (p *Pod) watchOOM() {
	for {
		ev, err := p.agent.GetOOMEvent(context.Background(), &agent.GetOOMEventRequest{})
		if err != nil {
			return
		}
		p.mu.Lock()
		_, known := p.containers[ev.ContainerId]
		if known {
			p.oom[ev.ContainerId] = true
		}
		p.mu.Unlock()
		if known {
			p.spec.OnOOM(ev.ContainerId)
		}
		select {
		case <-p.dead:
			return
		case <-time.After(oomPause):
		}
	}
}

// markDead ends every call that is still open.
func (p *Pod) markDead(err error) {
	p.kill.Do(func() {
		p.deadErr = err
		close(p.dead)
		p.raw.Close()
	})
}

// lost adds to a call's error why the connection broke. An error that the agent sent is
// left as it is.
func (p *Pod) lost(err error) error {
	closed := errors.Is(err, ttrpc.ErrClosed)
	if _, sent := status.FromError(err); sent && !closed {
		return err
	}
	if dead := p.Err(); dead != nil {
		return dead
	}
	if closed {
		return ErrAgentLost
	}
	return err
}

// Close closes the connection and leaves the pod as it is.
func (p *Pod) Close() {
	if p.conn == nil {
		return
	}
	if p.stop != nil {
		p.stop()
	}
	p.conn.Close()
}
