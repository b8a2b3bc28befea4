// SPDX-License-Identifier: Apache-2.0

package podclient

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// ContainerSpec says what container to make. Image and Args are required; the
// image's own configuration has been merged by the caller, as a container
// runtime on the node does.
type ContainerSpec struct {
	// ID is 64 hex digits from a CRI runtime; empty means a random one.
	ID string
	// Name is for humans; empty means "app".
	Name string
	// Image is the reference that the guest pulls.
	Image string
	Args  []string
	// Env holds KEY=value.
	Env []string
	// Cwd is the working directory; empty means "/".
	Cwd  string
	User User
	TTY  bool
	// Rows and Columns are the terminal's first size; 0 leaves the agent's.
	Rows, Columns uint32
	// Mounts are copied or made in the guest in this order.
	Mounts []Mount
	// MemoryBytes limits memory and swap together; 0 means no limit.
	MemoryBytes int64
	// MilliCPU limits CPU time in thousandths of a CPU; 0 means no limit.
	MilliCPU int64
	// Capabilities replace the default set, e.g. "CAP_NET_ADMIN"; nil keeps it.
	Capabilities []string
	// ReadonlyRootfs forbids writes outside of mounts.
	ReadonlyRootfs bool
	// NoNewPrivileges sets the flag of the same name.
	NoNewPrivileges bool
	// Sysctls are set in the pod's namespaces.
	Sysctls map[string]string
	// Annotations are added to those of the runtime.
	Annotations map[string]string

	// CreateTimeout is the deadline of CreateContainer; 0 means [PullTimeout].
	CreateTimeout time.Duration
	// OnEvent, if set, is called with the progress of the pull and with the
	// start.
	OnEvent func(Event)

	pause bool
}

// User is who a process runs as.
type User struct {
	UID, GID       uint32
	AdditionalGIDs []uint32
}

func (u User) proto() *agent.User {
	gids := u.AdditionalGIDs
	if len(gids) == 0 {
		gids = []uint32{u.GID}
	}
	return &agent.User{UID: u.UID, GID: u.GID, AdditionalGids: gids}
}

// Container is one container of a pod; Process is its first process.
type Container struct {
	*Process
	spec    ContainerSpec
	began   time.Time
	removed bool
}

// Spec returns the container's spec with its defaults filled in.
func (c *Container) Spec() ContainerSpec { return c.spec }

func (s ContainerSpec) withDefaults() (ContainerSpec, error) {
	if s.Image == "" {
		return s, errors.New("a container needs an image")
	}
	if len(s.Args) == 0 {
		return s, errors.New("a container needs a command: the image has none and none was given")
	}
	if s.ID == "" {
		s.ID = NewID()
	}
	if s.Name == "" {
		s.Name = "app"
	}
	if s.CreateTimeout == 0 {
		s.CreateTimeout = PullTimeout
	}
	if s.OnEvent == nil {
		s.OnEvent = func(Event) {}
	}
	return s, nil
}

// CreateContainer copies the mounts into the guest and creates the container;
// the guest pulls the image meanwhile. A failed container is removed again.
func (p *Pod) CreateContainer(ctx context.Context, spec ContainerSpec) (*Container, error) {
	return p.createContainer(ctx, spec)
}

// Container gives a handle on a container that was created over another
// connection, for Exec, Stats, or to take over its streams.
func (p *Pod) Container(id string, tty bool) *Container {
	c := &Container{Process: newProcess(p, id, id, tty), spec: ContainerSpec{ID: id, TTY: tty}, began: time.Now()}
	c.spec.OnEvent = func(Event) {}
	return c
}

func (p *Pod) createContainer(ctx context.Context, spec ContainerSpec) (*Container, error) {
	spec, err := spec.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Container{Process: newProcess(p, spec.ID, spec.ID, spec.TTY), spec: spec, began: time.Now()}
	mounts, storages, err := p.placeMounts(ctx, spec)
	if err != nil {
		return nil, err
	}
	req := p.createRequest(spec, mounts, storages)
	if err := c.create(ctx, req); err != nil {
		return nil, fmt.Errorf("CreateContainer: %w", p.lost(err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.containers[spec.ID] = c
	return c, nil
}

func (c *Container) create(ctx context.Context, req *agent.CreateContainerRequest) error {
	watch, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); c.watchPull(watch) }()
	defer func() { stop(); <-done }()
	return within(ctx, c.spec.CreateTimeout, func(ctx context.Context) error {
		_, err := c.pod.agent.CreateContainer(ctx, req)
		return err
	})
}

// watchPull asks for progress while CreateContainer is open. A stock kata-agent
// does not have the call; then no progress is reported.
func (c *Container) watchPull(ctx context.Context) {
	if c.spec.pause {
		return
	}
	var seen int64
	for ctx.Err() == nil {
		resp, err := c.pod.guest.PullProgress(ctx, &guest.PullProgressRequest{ContainerId: c.containerID, SeenBytes: seen})
		if err != nil {
			return
		}
		if resp.DoneBytes != seen || resp.TotalBytes > 0 {
			seen = resp.DoneBytes
			c.event(Event{Stage: StagePulling, Done: seen, Total: resp.TotalBytes})
		}
		poll.Sleep(ctx, 50*time.Millisecond)
	}
}

func (c *Container) event(e Event) {
	e.Elapsed = time.Since(c.began)
	c.spec.OnEvent(e)
}

// Start starts the container's first process.
func (c *Container) Start(ctx context.Context) error {
	err := within(ctx, CallTimeout, func(ctx context.Context) error {
		_, err := c.pod.agent.StartContainer(ctx, &agent.StartContainerRequest{ContainerId: c.containerID})
		return c.pod.lost(err)
	})
	if err != nil {
		return fmt.Errorf("StartContainer: %w", err)
	}
	c.pod.oomOnce.Do(func() { go c.pod.watchOOM() })
	c.event(Event{Stage: StageStarted})
	return nil
}

// Signal signals all processes of the container, as a shim does for a
// container; [Process.Signal] signals only the first.
func (c *Container) Signal(ctx context.Context, sig syscall.Signal) error {
	return c.pod.signal(ctx, c.containerID, "", sig)
}

// OOMKilled reports whether the guest killed a process of the container for
// want of memory.
func (c *Container) OOMKilled() bool { return c.pod.OOMKilled(c.containerID) }

// Stats asks for resource usage.
func (c *Container) Stats(ctx context.Context) (resp *agent.StatsContainerResponse, err error) {
	err = within(ctx, CallTimeout, func(ctx context.Context) (err error) {
		resp, err = c.pod.agent.StatsContainer(ctx, &agent.StatsContainerRequest{ContainerId: c.containerID})
		return c.pod.lost(err)
	})
	return resp, err
}

// Update changes the limits; see [ContainerSpec] for units and zero values.
func (c *Container) Update(ctx context.Context, memoryBytes, milliCPU int64) error {
	return c.UpdateResources(ctx, limits(memoryBytes, milliCPU))
}

// Pause freezes the container's processes.
func (c *Container) Pause(ctx context.Context) error {
	return within(ctx, CallTimeout, func(ctx context.Context) error {
		_, err := c.pod.agent.PauseContainer(ctx, &agent.PauseContainerRequest{ContainerId: c.containerID})
		return c.pod.lost(err)
	})
}

// Resume undoes Pause.
func (c *Container) Resume(ctx context.Context) error {
	return within(ctx, CallTimeout, func(ctx context.Context) error {
		_, err := c.pod.agent.ResumeContainer(ctx, &agent.ResumeContainerRequest{ContainerId: c.containerID})
		return c.pod.lost(err)
	})
}
