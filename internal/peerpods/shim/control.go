// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/emptypb"

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
	c, err := s.live(req.ID)
	if err != nil {
		return nil, err
	}
	if err := c.guest.Pause(ctx); err != nil {
		return nil, wire(err)
	}
	c.init.setPaused(true)
	s.opts.Events.Publish(&events.TaskPaused{ContainerID: c.id})
	return &emptypb.Empty{}, nil
}

// Resume undoes Pause.
func (s *Service) Resume(ctx context.Context, req *taskapi.ResumeRequest) (*emptypb.Empty, error) {
	c, err := s.live(req.ID)
	if err != nil {
		return nil, err
	}
	if err := c.guest.Resume(ctx); err != nil {
		return nil, wire(err)
	}
	c.init.setPaused(false)
	s.opts.Events.Publish(&events.TaskResumed{ContainerID: c.id})
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
