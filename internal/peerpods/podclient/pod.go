// SPDX-License-Identifier: Apache-2.0

package podclient

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"github.com/outrigger/outrigger/internal/protocol/hypervisor"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/internal/timeline"
)

// PodSpec says what pod to make. Only Name is required.
type PodSpec struct {
	// ID is the sandbox id, 64 hex digits from a CRI runtime; empty means a
	// random one.
	ID string
	// Name, Namespace and UID are the pod's; Namespace defaults to "default".
	Name, Namespace, UID string
	// Netns is the path of the pod's network namespace; empty for none.
	Netns string
	// Annotations are the hypervisor annotations of the pod, with their full
	// keys. They win over VCPUs and MemoryMiB.
	Annotations map[string]string
	// VCPUs and MemoryMiB size the VM; 0 leaves it to the provider.
	VCPUs, MemoryMiB int
	// Hostname of the pod; empty means Name.
	Hostname string
	// DNS holds the lines of the pod's resolv.conf.
	DNS []string
	// Hosts holds further lines of /etc/hosts, e.g. "10.0.0.7 pod".
	Hosts []string
	// Policy is a Rego text for the agent; empty for none.
	Policy string
	// ShmBytes is the size of /dev/shm; 0 means 64 MiB.
	ShmBytes int64
	// Pause also runs a pause container, as a CRI runtime does.
	Pause bool

	// StartTimeout is the deadline of StartVM; 0 means [StartTimeout].
	StartTimeout time.Duration
	// HealthInterval is the time between health checks; 0 means
	// [HealthInterval], negative means none.
	HealthInterval time.Duration
	// OnEvent, if set, is called with each step of progress. It must not block.
	OnEvent func(Event)
	// OnOOM, if set, is called with a container that lost a process for want of
	// memory. It must not block.
	OnOOM func(containerID string)
}

// ErrAgentLost means that the connection to the pod's agent broke or its health
// check failed: for a shim that is the death of the pod.
var ErrAgentLost = errors.New("connection to the pod's agent is lost")

// StartError reports a VM that did not come up, with the end of its console, made
// safe for a terminal.
type StartError struct {
	Err     error
	Console []byte
}

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// Pod is one sandbox. Its methods are safe for concurrent use.
type Pod struct {
	spec   PodSpec
	client *Client
	socket string
	began  time.Time

	dialTimeout time.Duration

	raw    net.Conn
	conn   *ttrpc.Client
	agent  agent.AgentServiceService
	health agent.HealthService
	guest  guest.GuestService
	pause  *Container
	// storageDrivers are those that the guest's agent has.
	storageDrivers []string
	// singly is set when the agent has no CopyFiles.
	singly atomic.Bool
	stop   context.CancelFunc

	mu         sync.Mutex
	containers map[string]*Container
	oom        map[string]bool
	calls      []timeline.Step
	stopped    bool

	dead    chan struct{}
	deadErr error
	kill    sync.Once
	oomOnce sync.Once
}

// NewID returns a random id like those of a CRI runtime: 64 hex digits.
func NewID() string {
	var b [32]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (s PodSpec) withDefaults() PodSpec {
	s.ID = cmp.Or(s.ID, NewID())
	s.Namespace = cmp.Or(s.Namespace, "default")
	s.Hostname = cmp.Or(s.Hostname, s.Name)
	s.ShmBytes = cmp.Or(s.ShmBytes, 64<<20)
	s.StartTimeout = cmp.Or(s.StartTimeout, StartTimeout)
	s.HealthInterval = cmp.Or(s.HealthInterval, HealthInterval)
	if s.OnEvent == nil {
		s.OnEvent = func(Event) {}
	}
	if s.OnOOM == nil {
		s.OnOOM = func(string) {}
	}
	return s
}

// NewPod prepares a pod without making any call; [Client.Create] makes all of
// them. The steps are CreateVM, StartVM, Connect, CreateSandbox, in this order.
func (c *Client) NewPod(spec PodSpec) (*Pod, error) {
	if spec.Name == "" {
		return nil, errors.New("a pod needs a name")
	}
	return &Pod{
		spec: spec.withDefaults(), client: c, began: time.Now(), dialTimeout: DialTimeout,
		containers: map[string]*Container{}, oom: map[string]bool{}, dead: make(chan struct{}),
	}, nil
}

// Create makes a pod up to the point where containers can be created. On an
// error nothing is left: as a shim does, StopVM follows a failed StartVM but
// not a failed CreateVM.
func (c *Client) Create(ctx context.Context, spec PodSpec) (*Pod, error) {
	p, err := c.NewPod(spec)
	if err != nil {
		return nil, err
	}
	if err := p.CreateVM(ctx); err != nil {
		return nil, err
	}
	if err := p.bringUp(ctx); err != nil {
		err = p.describeFailure(ctx, err)
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		return nil, errors.Join(err, p.Stop(undo))
	}
	return p, nil
}

func (p *Pod) bringUp(ctx context.Context) error {
	for _, step := range []func(context.Context) error{p.StartVM, p.Connect, p.CreateSandbox} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if !p.spec.Pause {
		return nil
	}
	// The container that a CRI runtime keeps in each pod. Its rootfs comes with the guest.
	c, err := p.CreateContainer(ctx, ContainerSpec{
		ID: p.spec.ID, Name: "pause", Image: "pause", Args: []string{"/pause"}, pause: true,
	})
	if err != nil {
		return fmt.Errorf("pause container: %w", err)
	}
	p.pause = c
	return c.Start(ctx)
}

// consoleEnd is how much of a console an error has, in bytes.
const consoleEnd = 4096

// describeFailure adds the console, as long as the VM still has one.
func (p *Pod) describeFailure(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	console, cerr := p.client.Console(ctx, p.spec.ID, consoleEnd)
	if cerr != nil {
		p.client.logger().Debug("no console", "sandbox", p.spec.ID, "error", cerr)
	}
	return &StartError{Err: err, Console: redact.Terminal(console[max(0, len(console)-consoleEnd):])}
}

// ID returns the sandbox id.
func (p *Pod) ID() string { return p.spec.ID }

// AgentSocket returns the path that CreateVM returned.
func (p *Pod) AgentSocket() string { return p.socket }

// Dead returns a channel that is closed when the agent is lost; Err then says why.
func (p *Pod) Dead() <-chan struct{} { return p.dead }

// Err returns nil until Dead is closed.
func (p *Pod) Err() error {
	select {
	case <-p.dead:
		return p.deadErr
	default:
		return nil
	}
}

func (p *Pod) event(stage Stage) {
	p.spec.OnEvent(Event{Stage: stage, Elapsed: time.Since(p.began)})
}

// CreateVM makes the sandbox known to the node.
func (p *Pod) CreateVM(ctx context.Context) (err error) {
	p.socket, err = p.client.CreateVM(ctx, &hypervisor.CreateVMRequest{
		Id:                   p.spec.ID,
		Annotations:          p.spec.vmAnnotations(),
		NetworkNamespacePath: p.spec.Netns,
	})
	return err
}

// vmAnnotations returns the nine annotations that a shim of Kata 3.11 or newer always
// sends, and the pod's own.
func (s PodSpec) vmAnnotations() map[string]string {
	ann := map[string]string{
		annSandboxName:                         s.Name,
		annSandboxNamespace:                    s.Namespace,
		hypervisorPrefix + "machine_type":      "",
		hypervisorPrefix + "default_vcpus":     strconv.Itoa(s.VCPUs),
		hypervisorPrefix + "default_memory":    strconv.Itoa(s.MemoryMiB),
		hypervisorPrefix + "cc_init_data":      "",
		hypervisorPrefix + "image":             "",
		hypervisorPrefix + "default_gpus":      "0",
		hypervisorPrefix + "default_gpu_model": "",
	}
	maps.Copy(ann, s.Annotations)
	return ann
}

// StartVM boots the VM.
func (p *Pod) StartVM(ctx context.Context) error {
	p.event(StageBooting)
	ctx, cancel := context.WithTimeout(ctx, p.spec.StartTimeout)
	defer cancel()
	return p.client.StartVM(ctx, p.spec.ID)
}

// CreateSandbox prepares the guest: policy, shared memory, hostname, DNS. It asks for
// the guest's details, as the shim does.
func (p *Pod) CreateSandbox(ctx context.Context) error {
	if p.spec.Policy != "" {
		if _, err := ask(ctx, p, "", SandboxTimeout, p.agent.SetPolicy, &agent.SetPolicyRequest{Policy: p.spec.Policy}); err != nil {
			return err
		}
	}
	if _, err := ask(ctx, p, "call-create-sandbox", SandboxTimeout, p.agent.CreateSandbox, p.spec.sandboxRequest()); err != nil {
		return err
	}
	details := &agent.GuestDetailsRequest{MemBlockSize: true, MemHotplugProbe: true}
	answer, err := ask(ctx, p, "", CallTimeout, p.agent.GetGuestDetails, details)
	p.storageDrivers = answer.GetAgentDetails().GetStorageHandlers()
	return err
}

func (s PodSpec) sandboxRequest() *agent.CreateSandboxRequest {
	return &agent.CreateSandboxRequest{
		Hostname: s.Hostname, Dns: s.DNS, SandboxId: s.ID,
		Storages: []*agent.Storage{{
			Driver: "ephemeral", Source: "shm", Fstype: "tmpfs", MountPoint: GuestShm,
			Options: []string{"noexec", "nosuid", "nodev", "mode=1777", fmt.Sprintf("size=%d", s.ShmBytes)},
		}},
	}
}

// Stop ends the container as CRI StopContainer does: SIGTERM, then SIGKILL
// after the grace period. Its exit status is returned.
func (c *Container) Stop(ctx context.Context, grace time.Duration) (int, error) {
	if err := c.Signal(ctx, syscall.SIGTERM); err != nil {
		return 0, err
	}
	soft, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if status, err := c.Wait(soft); err == nil || soft.Err() == nil || ctx.Err() != nil {
		return status, err
	}
	if err := c.Signal(ctx, syscall.SIGKILL); err != nil {
		return 0, err
	}
	return c.Wait(ctx)
}

// Remove kills what is left of the container and removes it, with the same
// calls as the shim: signal 9 and a second WaitProcess come in any case.
func (c *Container) Remove(ctx context.Context) error {
	c.pod.mu.Lock()
	done := c.removed
	c.removed = true
	delete(c.pod.containers, c.containerID)
	c.pod.mu.Unlock()
	if done {
		return nil
	}
	if err := c.killAndWait(ctx); err != nil {
		return fmt.Errorf("removing container %s: %w", c.containerID, err)
	}
	req := &agent.RemoveContainerRequest{ContainerId: c.containerID}
	if _, err := ask(ctx, c.pod, "", CallTimeout, c.pod.agent.RemoveContainer, req); err != nil {
		return err
	}
	_, err := ask(ctx, c.pod, "", CallTimeout,
		c.pod.agent.RemoveStaleVirtiofsShareMounts, &agent.RemoveStaleVirtiofsShareMountsRequest{})
	return err
}

func (c *Container) killAndWait(ctx context.Context) error {
	if err := c.Signal(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	req := &agent.WaitProcessRequest{ContainerId: c.containerID, ExecId: c.execID}
	_, err := ask(ctx, c.pod, "", CallTimeout, c.pod.agent.WaitProcess, req)
	return err
}

// Stop removes all containers, the sandbox and the VM. Calls that the agent
// does not answer any more are skipped: the VM is removed in any case, and only
// StopVM's error is returned. Repeating Stop is harmless.
func (p *Pod) Stop(ctx context.Context) error {
	p.mu.Lock()
	again := p.stopped
	p.stopped = true
	p.mu.Unlock()
	if again {
		return nil
	}
	if err := p.stopGuest(ctx); err != nil {
		p.client.logger().Warn("guest did not stop cleanly; removing its VM", "sandbox", p.spec.ID, "error", err)
	}
	p.Close()
	return p.client.StopVM(ctx, p.spec.ID)
}

// stopGuest does what the shim's StopPodSandbox does, up to DestroySandbox.
func (p *Pod) stopGuest(ctx context.Context) error {
	if p.agent == nil || p.Err() != nil {
		return nil
	}
	var errs []error
	p.mu.Lock()
	containers := slices.Collect(maps.Values(p.containers))
	p.mu.Unlock()
	for _, c := range containers {
		if c != p.pause {
			errs = append(errs, c.Remove(ctx))
		}
	}
	if p.pause != nil {
		errs = append(errs, p.pause.Signal(ctx, syscall.SIGKILL), p.pause.Remove(ctx))
	}
	_, err := ask(ctx, p, "", CallTimeout, p.agent.DestroySandbox, &agent.DestroySandboxRequest{})
	return errors.Join(append(errs, err)...)
}
