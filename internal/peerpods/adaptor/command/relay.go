// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/peerpods/relay"
	"github.com/outrigger/outrigger/internal/program"
	guestpb "github.com/outrigger/outrigger/internal/protocol/guest"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	timelinepb "github.com/outrigger/outrigger/internal/protocol/timeline"
)

// relayLink is the way to the node's agent relay. It starts the relay when
// nobody serves its socket and comes back to it when the connection breaks.
type relayLink struct {
	opts relay.EnsureOptions
	log  *slog.Logger
	// external: somebody else starts the relay.
	external bool

	mu     sync.Mutex
	client relaypb.RelayService
}

// answerWithin bounds calls that the relay handles at once. Serve has its own
// bound.
const answerWithin = 10 * time.Second

func (l *relayLink) Serve(ctx context.Context, req *relaypb.ServeRequest) error {
	response, err := ask(ctx, l, relaypb.RelayService.Serve, req)
	if err == nil && req.FramesPath != "" && !response.CarriesFrames {
		err = errors.New("the agent relay is older than this adaptor and carries no encrypted tunnel (-tunnel-type tls): replace it when no pod of the node needs it")
	}
	return err
}

func (l *relayLink) Stop(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	_, err := ask(ctx, l, relaypb.RelayService.Stop, &relaypb.StopRequest{Id: id})
	return err
}

func (l *relayLink) List(ctx context.Context) ([]*relaypb.Served, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	resp, err := ask(ctx, l, relaypb.RelayService.List, &relaypb.ListRequest{})
	return resp.GetServed(), err
}

func (l *relayLink) Timeline(ctx context.Context, id string) (*timelinepb.Timeline, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return ask(ctx, l, relaypb.RelayService.Timeline, &relaypb.TimelineRequest{Id: id})
}

func (l *relayLink) Attestation(ctx context.Context, id string) (*guestpb.AttestationResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return ask(ctx, l, relaypb.RelayService.Attestation, &relaypb.AttestationRequest{Id: id})
}

// ask calls the relay. If the connection has broken it calls again on a new
// one, since all calls are idempotent.
func ask[Req, Resp any](
	ctx context.Context, l *relayLink, call func(relaypb.RelayService, context.Context, *Req) (*Resp, error), req *Req,
) (*Resp, error) {
	client, err := l.connect(ctx, nil)
	if err != nil {
		return nil, err
	}
	resp, err := call(client, ctx, req)
	if broken(err) && ctx.Err() == nil {
		l.log.Warn("the connection to the agent relay broke; connecting again", "error", err)
		if client, err = l.connect(ctx, client); err == nil {
			resp, err = call(client, ctx, req)
		}
	}
	return resp, keepStatus(err)
}

// refusal is an error of the relay without the prefix that gRPC adds.
type refusal struct{ *status.Status }

func (r refusal) Error() string              { return r.Message() }
func (r refusal) GRPCStatus() *status.Status { return r.Status }

func keepStatus(err error) error {
	if st, ok := status.FromError(err); ok && err != nil {
		return refusal{st}
	}
	return err
}

// connect returns a connection other than the broken one.
func (l *relayLink) connect(ctx context.Context, brokenOne relaypb.RelayService) (relaypb.RelayService, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client != nil && l.client != brokenOne {
		return l.client, nil
	}
	if closer, ok := brokenOne.(interface{ Close() error }); ok {
		closer.Close()
	}
	l.client = nil
	client, err := l.reach(ctx)
	if err != nil {
		return nil, fmt.Errorf("agent relay: %w", err)
	}
	l.client = client
	return client, nil
}

// reach dials the relay. One that somebody else starts may not be up yet.
func (l *relayLink) reach(ctx context.Context) (*relay.Client, error) {
	if !l.external {
		return relay.Ensure(ctx, l.opts)
	}
	for {
		client, err := relay.Dial(ctx, l.opts.Socket)
		if err == nil {
			return client, nil
		}
		select {
		case <-time.After(dialInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("with -relay-external (RELAY_EXTERNAL) somebody else must start agent-relay -socket %s: %w", l.opts.Socket, err)
		}
	}
}

// dialInterval is the pause between two tries to reach a relay that somebody
// else starts, awaitLog that between two complaints.
const (
	dialInterval = 50 * time.Millisecond
	awaitLog     = 10 * time.Second
)

// await returns when the external relay answers or ctx ends.
func (l *relayLink) await(ctx context.Context) error {
	for {
		err := l.answers(ctx)
		if err == nil || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l.log.Warn("waiting for the agent relay", "error", err)
	}
}

func (l *relayLink) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, awaitLog)
	defer cancel()
	_, err := l.List(ctx)
	return err
}

func (l *relayLink) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if closer, ok := l.client.(interface{ Close() error }); ok {
		closer.Close()
	}
	l.client = nil
}

// broken reports whether the relay or the connection to it is gone, as opposed
// to the relay having refused.
func broken(err error) bool {
	return status.Code(err) == codes.Unavailable || errors.Is(err, ttrpc.ErrClosed) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// relayProgram finds agent-relay: at the configured path, else beside this
// program, else in PATH.
func relayProgram(configured string) (string, error) {
	if configured != "" {
		if _, err := exec.LookPath(configured); err != nil {
			return "", fmt.Errorf("-relay-path: %w", err)
		}
		return configured, nil
	}
	path, err := program.Find(relay.Program)
	if err != nil {
		return "", errors.New("agent-relay is neither beside this program nor in PATH; name it with -relay-path")
	}
	return path, nil
}
