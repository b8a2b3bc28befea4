// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/task"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outrigger/outrigger/internal/peerpods/shim/guestspec"
)

// Start starts a container's first process or an exec.
func (s *Service) Start(ctx context.Context, req *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	c, p, err := s.process(req.ID, req.ExecID)
	if err != nil {
		return nil, err
	}
	if err := p.claim(); err != nil {
		return nil, err
	}
	if err := c.start(ctx, p); err != nil {
		p.unclaim()
		s.log.Error("process not started", "container", req.ID, "exec", req.ExecID, "error", err)
		return nil, wire(err)
	}
	// The event of the start has to precede that of the exit.
	if p.exec == "" {
		s.opts.Events.Publish(&events.TaskStart{ContainerID: c.id, Pid: pid()})
	} else {
		s.opts.Events.Publish(&events.TaskExecStarted{ContainerID: c.id, ExecID: p.exec, Pid: pid()})
	}
	go s.follow(c, p)
	return &taskapi.StartResponse{Pid: pid()}, nil
}

// start opens the FIFOs first: a process whose output is lost must not run.
func (c *container) start(ctx context.Context, p *process) error {
	streams, err := p.paths.open()
	if err != nil {
		return err
	}
	run := c.guest.Process
	if p.exec == "" {
		err = c.guest.Start(ctx)
	} else {
		run, err = c.guest.ExecProcess(ctx, p.exec, p.spec)
	}
	if err != nil {
		streams.Close()
		return err
	}
	p.started(run, streams)
	run.Stream(streams.streams())
	if streams.stdin == nil && !p.paths.terminal && c.role != roleSandbox {
		// Nobody will ever write, so this acts like /dev/null.
		run.CloseStdin(ctx)
	}
	return nil
}

// follow waits for the end of a process and reports it.
func (s *Service) follow(c *container, p *process) {
	code, err := p.run.Wait(context.Background())
	if err != nil {
		s.log.Warn("the guest did not return a process's exit status", "container", c.id, "exec", p.exec, "error", err)
	}
	s.ended(c, p, p.statusOf(code, err))
}

// ended cleans up in the guest before the exit is known: with the sandbox
// container's event the VM is gone.
func (s *Service) ended(c *container, p *process, code uint32) {
	if p.exec == "" {
		s.endContainer(c)
	}
	p.exit(code, func(at *timestamppb.Timestamp) {
		s.opts.Events.Publish(&events.TaskExit{ContainerID: c.id, ID: p.id(), Pid: pid(), ExitStatus: code, ExitedAt: at})
	})
}

func (s *Service) endContainer(c *container) {
	c.volumes.Close()
	if c.ownsVM() {
		s.endVM(c.vm)
		return
	}
	if c.vm.pod.Err() != nil {
		return
	}
	s.fetchTerminationMessage(context.Background(), c)
	if err := c.guest.Remove(context.Background()); err != nil && c.vm.pod.Err() == nil {
		s.log.Warn("an ended container stays in the VM", "container", c.id, "error", err)
	}
}

// Exec adds a process to a container; Start starts it.
func (s *Service) Exec(_ context.Context, req *taskapi.ExecProcessRequest) (*emptypb.Empty, error) {
	c, err := s.container(req.ID)
	if err != nil {
		return nil, err
	}
	if state := c.init.state(); state != task.Status_RUNNING {
		return nil, failedPrecondition("container %s is %v: nothing can be executed in it", c.id, state)
	}
	var spec oci.Process
	if err := json.Unmarshal(req.Spec.GetValue(), &spec); err != nil {
		return nil, invalid(fmt.Errorf("the exec's process: %w", err))
	}
	p := newProcess(c.id, req.ExecID, paths{stdin: req.Stdin, stdout: req.Stdout, stderr: req.Stderr, terminal: req.Terminal})
	p.spec = guestspec.Process(&spec)
	p.spec.Terminal = req.Terminal
	if err := c.addExec(p); err != nil {
		return nil, err
	}
	s.opts.Events.Publish(&events.TaskExecAdded{ContainerID: c.id, ExecID: p.exec})
	return &emptypb.Empty{}, nil
}

func (c *container) addExec(p *process) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.execs[p.exec] != nil {
		return alreadyExists("container %s has an exec %s already", c.id, p.exec)
	}
	c.execs[p.exec] = p
	return nil
}
