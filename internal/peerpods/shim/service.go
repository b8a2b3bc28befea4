// SPDX-License-Identifier: Apache-2.0

// Package shim is a containerd runtime v2 shim whose containers run in a VM
// that a remote hypervisor service makes: what the Kata shim does with
// hypervisor "remote", over package podclient.
//
// There is one process per pod. containerd's CRI plugin creates the pause
// container first, which brings the VM up, and the others after it; when the
// pause container ends the VM goes away. The process outlives containerd: it
// serves a socket of its own and holds both ends of what containerd may drop.
//
// Main is the whole program, Service the task service.
package shim

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/task"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/version"
)

// Options of a service.
type Options struct {
	Log    *slog.Logger
	Events *Publisher
	// Getenv returns the variables that LoadConfig reads.
	Getenv func(string) string
	// Exit is called, once, when containerd has no use for the shim any more.
	Exit func()
}

// Service is the task service of one pod.
type Service struct {
	opts Options
	log  *slog.Logger
	exit sync.Once

	mu  sync.Mutex
	vm  *sandbox // nil before the sandbox container and after its end
	all map[string]*container
	// coming are containers being created.
	coming map[string]bool
}

var _ taskapi.TTRPCTaskService = (*Service)(nil)

// container is a task: its first process and execs.
type container struct {
	*bundle
	init        *process
	vm          *sandbox
	guest       *podclient.Container
	volumes     *refresher
	termination *terminationMessage // nil if nobody asks for them

	mu    sync.Mutex
	execs map[string]*process
}

// New returns a service without tasks.
func New(o Options) *Service {
	return &Service{opts: o, log: o.Log, all: map[string]*container{}, coming: map[string]bool{}}
}

// pid returns the shim's process id, which stands for every process: their own ids are
// those in the guest. containerd only needs one that lives as long as the pod.
func pid() uint32 { return uint32(os.Getpid()) }

func (s *Service) container(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.all[id]; c != nil {
		return c, nil
	}
	return nil, notFound("container %s is not of this shim", id)
}

// process finds a container's first process or, with an exec id, an exec.
func (s *Service) process(id, exec string) (*container, *process, error) {
	c, err := s.container(id)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.process(exec)
	return c, p, err
}

func (c *container) process(exec string) (*process, error) {
	if exec == "" {
		return c.init, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.execs[exec]; p != nil {
		return p, nil
	}
	return nil, notFound("container %s has no exec %s", c.id, exec)
}

func (c *container) processes() []*process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(slices.Collect(maps.Values(c.execs)), c.init)
}

func (s *Service) containers() []*container {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all))
}

// Shutdown ends the shim if it has no containers any more; containerd asks for
// that after each Delete.
func (s *Service) Shutdown(context.Context, *taskapi.ShutdownRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	idle := len(s.all) == 0 && len(s.coming) == 0
	s.mu.Unlock()
	if idle {
		s.exit.Do(s.opts.Exit)
	}
	return &emptypb.Empty{}, nil
}

// Checkpoint returns an error: it is not possible.
func (s *Service) Checkpoint(context.Context, *taskapi.CheckpointTaskRequest) (*emptypb.Empty, error) {
	return nil, unimplemented("Checkpoint")
}

// State returns what is known of a process, without asking the guest.
func (s *Service) State(ctx context.Context, req *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	c, p, err := s.process(req.ID, req.ExecID)
	if err != nil {
		return nil, err
	}
	p.awaitReader(ctx)
	code, at := p.result()
	return &taskapi.StateResponse{
		ID: c.id, ExecID: p.exec, Bundle: c.path, Pid: pid(), Status: p.state(),
		Stdin: p.paths.stdin, Stdout: p.paths.stdout, Stderr: p.paths.stderr, Terminal: p.paths.terminal,
		ExitStatus: code, ExitedAt: at,
	}, nil
}

// Pids returns one for the whole container, see pid.
func (s *Service) Pids(_ context.Context, req *taskapi.PidsRequest) (*taskapi.PidsResponse, error) {
	if _, err := s.container(req.ID); err != nil {
		return nil, err
	}
	return &taskapi.PidsResponse{Processes: []*task.ProcessInfo{{Pid: pid()}}}, nil
}

// Connect implements containerd's first call after a restart.
func (s *Service) Connect(_ context.Context, req *taskapi.ConnectRequest) (*taskapi.ConnectResponse, error) {
	resp := &taskapi.ConnectResponse{ShimPid: pid(), Version: version.Version}
	if _, err := s.container(req.ID); err == nil {
		resp.TaskPid = pid()
	}
	return resp, nil
}

// containerd acts on the codes of these errors.

func notFound(format string, args ...any) error {
	return status.Errorf(codes.NotFound, format, args...)
}

func failedPrecondition(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, format, args...)
}

func alreadyExists(format string, args ...any) error {
	return status.Errorf(codes.AlreadyExists, format, args...)
}

func invalid(err error) error { return status.Error(codes.InvalidArgument, err.Error()) }

func unimplemented(what string) error {
	return status.Error(codes.Unimplemented, what+": a pod in a VM has no checkpoints")
}

// wire keeps the code that an error has deeper down, e.g. ResourceExhausted of
// the hypervisor service, with the whole text.
func wire(err error) error {
	var coded interface{ GRPCStatus() *status.Status }
	if errors.As(err, &coded) {
		return status.Error(coded.GRPCStatus().Code(), err.Error())
	}
	return err
}
