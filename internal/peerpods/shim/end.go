// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"errors"
	"syscall"

	"github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/task"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// Kill signals one process or all of a container. A process that was never
// started ends by it: nothing else would end it.
func (s *Service) Kill(ctx context.Context, req *taskapi.KillRequest) (*emptypb.Empty, error) {
	c, p, err := s.process(req.ID, req.ExecID)
	if err != nil {
		return nil, err
	}
	sig := syscall.Signal(req.Signal)
	if p.state() == task.Status_CREATED {
		go s.ended(c, p, 128+req.Signal)
		return &emptypb.Empty{}, nil
	}
	run, err := p.running()
	if err != nil {
		return nil, err
	}
	if sig == syscall.SIGKILL {
		p.kill(sig)
	}
	if p.exec == "" && req.All {
		err = c.guest.Signal(ctx, sig)
	} else {
		err = run.Signal(ctx, sig)
	}
	if errors.Is(err, podclient.ErrAgentLost) || err != nil && c.vm.pod.Err() != nil {
		// The VM went away meanwhile, perhaps by this very signal; the exit of
		// all its processes follows. Who called may know before the pod does.
		return &emptypb.Empty{}, nil
	}
	return &emptypb.Empty{}, wire(err)
}

// Delete forgets a process that has ended, or never ran, and returns its exit
// status.
func (s *Service) Delete(_ context.Context, req *taskapi.DeleteRequest) (*taskapi.DeleteResponse, error) {
	c, p, err := s.process(req.ID, req.ExecID)
	if err != nil {
		return nil, err
	}
	switch p.state() {
	case task.Status_CREATED:
		s.ended(c, p, 128+uint32(syscall.SIGKILL))
	case task.Status_STOPPED:
	default:
		return nil, failedPrecondition("process %s is running: kill it first", p.id())
	}
	s.drop(c, p)
	code, at := p.result()
	return &taskapi.DeleteResponse{Pid: pid(), ExitStatus: code, ExitedAt: at}, nil
}

func (s *Service) drop(c *container, p *process) {
	p.forget()
	if p.exec != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.execs, p.exec)
		return
	}
	s.mu.Lock()
	delete(s.all, c.id)
	s.mu.Unlock()
	code, at := p.result()
	s.opts.Events.Publish(&events.TaskDelete{ContainerID: c.id, Pid: pid(), ExitStatus: code, ExitedAt: at})
}

// Wait returns when the process has ended.
func (s *Service) Wait(ctx context.Context, req *taskapi.WaitRequest) (*taskapi.WaitResponse, error) {
	_, p, err := s.process(req.ID, req.ExecID)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	code, at := p.result()
	return &taskapi.WaitResponse{ExitStatus: code, ExitedAt: at}, nil
}

// Terminate removes the VM, for a shim that gets SIGTERM.
func (s *Service) Terminate() {
	s.mu.Lock()
	vm := s.vm
	s.mu.Unlock()
	if vm != nil {
		s.endVM(vm)
	}
	s.exit.Do(s.opts.Exit)
}
