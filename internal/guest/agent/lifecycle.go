// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/outrigger/outrigger/internal/guest/pull"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// WaitProcess returns the exit status, to any number of callers, until
// RemoveContainer.
func (a *Agent) WaitProcess(ctx context.Context, req *agent.WaitProcessRequest) (*agent.WaitProcessResponse, error) {
	p, err := a.findProcess(req.GetContainerId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	if err := await(ctx, p.exited); err != nil {
		return nil, fail(codes.Internal, err)
	}
	p.asked.Store(true)
	return &agent.WaitProcessResponse{Status: int32(p.child.Code())}, nil
}

// SignalProcess signals one process, or with an empty exec id all of the
// container's. Those that have ended already are success.
func (a *Agent) SignalProcess(ctx context.Context, req *agent.SignalProcessRequest) (*emptypb.Empty, error) {
	sig := unix.Signal(req.GetSignal())
	if sig < 1 || sig > 64 {
		return nil, status.Errorf(codes.InvalidArgument, "signal %d: there are 1 to 64", req.GetSignal())
	}
	c, err := a.find(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if req.GetExecId() == "" && c.cgroup.processes() != "" {
		return &emptypb.Empty{}, fail(codes.Internal, c.signalAll(sig))
	}
	p, err := a.findProcess(c.id, req.GetExecId())
	if err != nil {
		return nil, err
	}
	if err := a.reaper.Signal(p.child, sig); err != nil {
		return nil, fail(codes.Internal, err)
	}
	if sig == unix.SIGKILL && !c.pause {
		return &emptypb.Empty{}, fail(codes.Internal, c.cgroup.thaw())
	}
	return &emptypb.Empty{}, nil
}

// signalAll reaches a paused container as well if it is to die.
func (c *container) signalAll(sig unix.Signal) error {
	if sig != unix.SIGKILL {
		_, err := c.cgroup.signal(sig, make(map[int]bool))
		return err
	}
	return errors.Join(c.cgroup.killAll(), c.cgroup.thaw())
}

// PauseContainer freezes a container.
func (a *Agent) PauseContainer(ctx context.Context, req *agent.PauseContainerRequest) (*emptypb.Empty, error) {
	return a.freeze(ctx, req.GetContainerId(), unix.SIGSTOP, "pause")
}

// ResumeContainer undoes PauseContainer.
func (a *Agent) ResumeContainer(ctx context.Context, req *agent.ResumeContainerRequest) (*emptypb.Empty, error) {
	return a.freeze(ctx, req.GetContainerId(), unix.SIGCONT, "resume")
}

// freeze runs a command of the runtime, for which the pause process has a signal.
func (a *Agent) freeze(ctx context.Context, id string, sig unix.Signal, command string) (*emptypb.Empty, error) {
	c, err := a.find(id)
	if err != nil {
		return nil, err
	}
	if c.pause {
		return &emptypb.Empty{}, fail(codes.Internal, a.reaper.Signal(c.init.child, sig))
	}
	return &emptypb.Empty{}, fail(codes.FailedPrecondition, a.runtime.run(ctx, files{}, command, id))
}

// UpdateContainer applies memory, CPU and process limits. Callers send the
// whole set again; its device rules are left alone, since they come without
// what they should allow.
func (a *Agent) UpdateContainer(ctx context.Context, req *agent.UpdateContainerRequest) (*emptypb.Empty, error) {
	c, err := a.find(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	resources, err := toResources(req.GetResources())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if c.pause || resources == nil {
		return &emptypb.Empty{}, nil // a pause process uses nothing that could be limited
	}
	resources.Devices, resources.BlockIO, resources.Network = nil, nil, nil
	if err := a.runtime.update(ctx, c, resources); err != nil {
		return nil, fail(codes.InvalidArgument, err)
	}
	return &emptypb.Empty{}, nil
}

// RemoveContainer kills what runs and removes all traces; Timeout bounds it in
// seconds, 0 not at all. A container that is gone is success.
func (a *Agent) RemoveContainer(ctx context.Context, req *agent.RemoveContainerRequest) (*emptypb.Empty, error) {
	if t := req.GetTimeout(); t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(t)*time.Second)
		defer cancel()
	}
	a.mu.Lock()
	c, ok := a.containers[req.GetContainerId()]
	a.mu.Unlock()
	switch {
	case !ok:
		return &emptypb.Empty{}, nil
	case c.state.Load() == creating:
		return nil, status.Errorf(codes.FailedPrecondition, "container %q is just being created", c.id)
	}
	if err := a.discard(ctx, c); err != nil {
		return nil, fail(codes.Internal, fmt.Errorf("remove container %s: %w", c.id, err))
	}
	return &emptypb.Empty{}, nil
}

// discard removes a container in whatever state it is. It can be repeated.
func (a *Agent) discard(ctx context.Context, c *container) error {
	if err := c.removing.take(ctx); err != nil {
		return err
	}
	defer c.removing.give()
	if !c.pause {
		if err := a.discardRunning(ctx, c); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.containers[c.id] == c {
		delete(a.containers, c.id)
	}
	return nil
}

func (a *Agent) discardRunning(ctx context.Context, c *container) error {
	c.stopOOM()
	if c.init != nil {
		if err := c.signalAll(unix.SIGKILL); err != nil {
			return err
		}
		// The first process may have left its cgroup.
		if err := a.reaper.Signal(c.init.child, unix.SIGKILL); err != nil {
			return err
		}
		if err := await(ctx, c.init.child.Done); err != nil {
			return fmt.Errorf("its process does not end: %w", err)
		}
	}
	if err := a.runtime.delete(ctx, c.id); err != nil {
		return err
	}
	c.closeStreams()
	if c.rootfs != "" {
		if err := pull.Unmount(c.scratch, c.rootfs); err != nil {
			return err
		}
	}
	return os.RemoveAll(c.bundle)
}
