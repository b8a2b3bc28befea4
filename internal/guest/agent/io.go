// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// ReadStdout blocks until there is output. Its end is InvalidArgument "eof",
// as callers expect it.
func (a *Agent) ReadStdout(ctx context.Context, req *agent.ReadStreamRequest) (*agent.ReadStreamResponse, error) {
	return a.readStream(ctx, req, func(p *process) *source { return p.stdout })
}

// ReadStderr is like ReadStdout. With a terminal there is no stderr.
func (a *Agent) ReadStderr(ctx context.Context, req *agent.ReadStreamRequest) (*agent.ReadStreamResponse, error) {
	return a.readStream(ctx, req, func(p *process) *source { return p.stderr })
}

func (a *Agent) readStream(ctx context.Context, req *agent.ReadStreamRequest, of func(*process) *source) (*agent.ReadStreamResponse, error) {
	p, err := a.findProcess(req.GetContainerId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	data, err := of(p).read(ctx, int(req.GetLen()))
	switch {
	case errors.Is(err, io.EOF):
		return nil, status.Error(codes.InvalidArgument, "eof")
	case err != nil:
		return nil, fail(codes.Internal, err)
	}
	return &agent.ReadStreamResponse{Data: data}, nil
}

// WriteStdin blocks while the process does not read. The response says how much
// was written, also when the deadline cut it short.
func (a *Agent) WriteStdin(ctx context.Context, req *agent.WriteStreamRequest) (*agent.WriteStreamResponse, error) {
	p, err := a.findProcess(req.GetContainerId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	n, err := p.stdin.write(ctx, req.GetData())
	switch {
	case err == nil || n > 0:
		return &agent.WriteStreamResponse{Len: uint32(n)}, nil
	case errors.Is(err, os.ErrClosed), errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO):
		return nil, status.Error(codes.FailedPrecondition, "nobody reads the process's input any more")
	}
	return nil, fail(codes.Internal, err)
}

// CloseStdin ends a process's input; a second time it does nothing.
func (a *Agent) CloseStdin(ctx context.Context, req *agent.CloseStdinRequest) (*emptypb.Empty, error) {
	p, err := a.findProcess(req.GetContainerId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, fail(codes.Internal, p.stdin.finish(ctx))
}

// TtyWinResize sets the terminal's size, at any time of a process's life.
func (a *Agent) TtyWinResize(ctx context.Context, req *agent.TtyWinResizeRequest) (*emptypb.Empty, error) {
	p, err := a.findProcess(req.GetContainerId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	if p.tty == nil {
		return nil, status.Error(codes.FailedPrecondition, "the process has no terminal")
	}
	err = resize(p.tty, req.GetRow(), req.GetColumn())
	if p.stdout.closed() {
		err = nil // it has just ended
	}
	return &emptypb.Empty{}, fail(codes.Internal, err)
}
