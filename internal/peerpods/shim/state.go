// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/task"

	"github.com/outrigger/outrigger/internal/version"
)

// State returns what is known of a process, without asking the guest.
func (s *Service) State(_ context.Context, req *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	c, p, err := s.process(req.ID, req.ExecID)
	if err != nil {
		return nil, err
	}
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
