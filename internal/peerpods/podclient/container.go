// SPDX-License-Identifier: Apache-2.0

package podclient

import (
	"cmp"
	"context"
	"errors"
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
	// ReadOnly makes the root file system one that cannot be written to.
	ReadOnly bool
	// NoNewPrivileges keeps programs such as sudo from getting more rights.
	NoNewPrivileges bool

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

func (s ContainerSpec) withDefaults() (ContainerSpec, error) {
	if s.Image == "" {
		return s, errors.New("a container needs an image")
	}
	if len(s.Args) == 0 {
		return s, errors.New("a container needs a command: the image has none and none was given")
	}
	s.ID = cmp.Or(s.ID, NewID())
	s.Name = cmp.Or(s.Name, "app")
	s.CreateTimeout = cmp.Or(s.CreateTimeout, PullTimeout)
	if s.OnEvent == nil {
		s.OnEvent = func(Event) {}
	}
	return s, nil
}

// CreateContainer copies the mounts into the guest and creates the container;
// the guest pulls the image meanwhile. A failed container is removed again.
func (p *Pod) CreateContainer(ctx context.Context, spec ContainerSpec) (*Container, error) {
	spec, err := spec.withDefaults()
	if err != nil {
		return nil, err
	}
	c := p.Container(spec.ID, spec.TTY)
	c.spec = spec
	mounts, storages, err := p.placeMounts(ctx, spec)
	if err != nil {
		return nil, err
	}
	watch, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); c.watchPull(watch) }()
	defer func() { stop(); <-done }()
	if err := c.create(ctx, p.createRequest(spec, mounts, storages), spec.CreateTimeout); err != nil {
		return nil, err
	}
	return c, nil
}

// CreateFrom creates a container from a request as it goes over the wire, for container
// runtimes with OCI specs of their own. Its mounts are in the guest already. timeout 0
// means [PullTimeout].
func (p *Pod) CreateFrom(ctx context.Context, req *agent.CreateContainerRequest, timeout time.Duration) (*Container, error) {
	if req.GetOCI().GetProcess() == nil {
		return nil, errors.New("CreateContainer: the OCI spec has no process")
	}
	c := p.Container(req.ContainerId, req.OCI.Process.Terminal)
	if err := c.create(ctx, req, cmp.Or(timeout, PullTimeout)); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Container) create(ctx context.Context, req *agent.CreateContainerRequest, timeout time.Duration) error {
	if _, err := ask(ctx, c.pod, "call-create-container", timeout, c.pod.agent.CreateContainer, req); err != nil {
		return err
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	c.pod.containers[c.containerID] = c
	return nil
}

// Container gives a handle on a container that was created over another
// connection, for Exec, Stats, or to take over its streams.
func (p *Pod) Container(id string, tty bool) *Container {
	c := &Container{Process: newProcess(p, id, id, tty), spec: ContainerSpec{ID: id, TTY: tty}, began: time.Now()}
	c.spec.OnEvent = func(Event) {}
	return c
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
			c.event(Event{Stage: StagePulling, Done: max(seen, 0), Total: max(resp.TotalBytes, 0)})
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
	req := &agent.StartContainerRequest{ContainerId: c.containerID}
	if _, err := ask(ctx, c.pod, "call-start-container", CallTimeout, c.pod.agent.StartContainer, req); err != nil {
		return err
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
func (c *Container) OOMKilled() bool {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.pod.oom[c.containerID]
}

// Stats asks for resource usage.
func (c *Container) Stats(ctx context.Context) (*agent.StatsContainerResponse, error) {
	return ask(ctx, c.pod, "", CallTimeout, c.pod.agent.StatsContainer, &agent.StatsContainerRequest{ContainerId: c.containerID})
}

// UpdateResources sets the limits. Of the resources only memory and CPU count
// in the guest; they replace what was set; they are not increments.
func (c *Container) UpdateResources(ctx context.Context, res *agent.LinuxResources) error {
	// The shim sends this entry; an agent that took it literally would deny
	// all devices, none does.
	res.Devices = []*agent.LinuxDeviceCgroup{{Access: "rwm"}}
	req := &agent.UpdateContainerRequest{ContainerId: c.containerID, Resources: res}
	_, err := ask(ctx, c.pod, "", CallTimeout, c.pod.agent.UpdateContainer, req)
	return err
}

// Pause freezes the container's processes.
func (c *Container) Pause(ctx context.Context) error {
	_, err := ask(ctx, c.pod, "", CallTimeout, c.pod.agent.PauseContainer, &agent.PauseContainerRequest{ContainerId: c.containerID})
	return err
}

// Resume undoes Pause.
func (c *Container) Resume(ctx context.Context) error {
	_, err := ask(ctx, c.pod, "", CallTimeout, c.pod.agent.ResumeContainer, &agent.ResumeContainerRequest{ContainerId: c.containerID})
	return err
}
