// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"

	"github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/task"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/peerpods/shim/guestspec"
)

// live finds a container whose first process runs.
func (s *Service) live(id string) (*container, error) {
	c, err := s.container(id)
	if err != nil {
		return nil, err
	}
	_, err = c.init.running()
	return c, err
}

// Pause freezes a container.
func (s *Service) Pause(ctx context.Context, req *taskapi.PauseRequest) (*emptypb.Empty, error) {
	return s.setPaused(ctx, req.ID, true, (*podclient.Container).Pause, &events.TaskPaused{ContainerID: req.ID})
}

// Resume undoes Pause.
func (s *Service) Resume(ctx context.Context, req *taskapi.ResumeRequest) (*emptypb.Empty, error) {
	return s.setPaused(ctx, req.ID, false, (*podclient.Container).Resume, &events.TaskResumed{ContainerID: req.ID})
}

func (s *Service) setPaused(
	ctx context.Context, id string, paused bool, do func(*podclient.Container, context.Context) error, event proto.Message,
) (*emptypb.Empty, error) {
	c, err := s.live(id)
	if err != nil {
		return nil, err
	}
	if err := do(c.guest, ctx); err != nil {
		return nil, wire(err)
	}
	c.init.setPaused(paused)
	s.opts.Events.Publish(event)
	return &emptypb.Empty{}, nil
}

// ResizePty sets the size of a terminal.
func (s *Service) ResizePty(ctx context.Context, req *taskapi.ResizePtyRequest) (*emptypb.Empty, error) {
	_, p, err := s.process(req.ID, req.ExecID)
	if err != nil {
		return nil, err
	}
	run, err := p.running()
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, wire(run.Resize(ctx, req.Height, req.Width))
}

// CloseIO closes the process's standard input. It does not wait for what is
// still in the FIFO.
func (s *Service) CloseIO(_ context.Context, req *taskapi.CloseIORequest) (*emptypb.Empty, error) {
	_, p, err := s.process(req.ID, req.ExecID)
	if err != nil {
		return nil, err
	}
	if req.Stdin {
		p.closeStdin()
	}
	return &emptypb.Empty{}, nil
}

// Update sets the limits of a container.
func (s *Service) Update(ctx context.Context, req *taskapi.UpdateTaskRequest) (*emptypb.Empty, error) {
	c, err := s.container(req.ID)
	if err != nil {
		return nil, err
	}
	var resources oci.LinuxResources
	if err := json.Unmarshal(req.Resources.GetValue(), &resources); err != nil {
		return nil, invalid(fmt.Errorf("the resources: %w", err))
	}
	return &emptypb.Empty{}, wire(c.guest.UpdateResources(ctx, guestspec.Resources(&resources)))
}

// Stats returns what a container uses, as cgroup v1 metrics.
func (s *Service) Stats(ctx context.Context, req *taskapi.StatsRequest) (*taskapi.StatsResponse, error) {
	c, err := s.live(req.ID)
	if err != nil {
		return nil, err
	}
	used, err := c.guest.Stats(ctx)
	if err != nil {
		return nil, wire(err)
	}
	stats, err := bare(metrics(used))
	return &taskapi.StatsResponse{Stats: stats}, err
}

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
