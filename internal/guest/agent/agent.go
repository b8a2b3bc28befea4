// SPDX-License-Identifier: Apache-2.0

// Package agent is podvm-agent: it serves the Kata agent protocol in a pod VM
// and runs the pod's containers with an OCI runtime.
//
// # What survives the agent
//
// Containers run on when the agent is killed. Its successor finds them by the
// state folder: it can signal, exec into, measure and remove them. What only
// the old one had is lost: their output and input pipes (a process that writes
// gets SIGPIPE, readers get the end of the stream) and the status of those that
// end afterwards (reported as 255). Its clients lose their connection, which
// the Kata shim takes for the end of the pod.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/containerd/ttrpc"
	"github.com/outrigger/outrigger/internal/guest/pull"
	"github.com/outrigger/outrigger/internal/guest/reaper"
	"github.com/outrigger/outrigger/internal/peerpods/ttrpcframe"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// requestRoot is the folder under which callers place everything in the VM:
// Kata's, part of the protocol.
const requestRoot = "/run/kata-containers"

// Defaults of Config.
const (
	DefaultSocket   = requestRoot + "/agent.sock"
	DefaultRoot     = requestRoot
	DefaultStateDir = "/run/podvm-agent"
	DefaultPodNetNS = "/run/netns/podns"
)

// Config says where the agent works.
type Config struct {
	// Root stands for /run/kata-containers in requests.
	Root string
	// StateDir holds the runtime's state, bundles and sockets, not bulk data. Its
	// path has to be short: sockets in it are limited to 107 bytes.
	StateDir string
	// Runc is the OCI runtime, a path or a name in PATH.
	Runc string
	// PodNetNS is the pod's network namespace, if the file exists.
	PodNetNS string
	// ProcSys is where the kernel's settings are, /proc/sys.
	ProcSys string
	// Provisioned is the folder of what the node sent.
	Provisioned string
	// Images says how images are pulled; its folder and marks are set here.
	Images pull.Config
	// Marks is where steps of the pod's start are noted.
	Marks   marks.Marks
	Version string
	Log     *slog.Logger

	// rehearses is of a rehearsal, which is of no pod.
	rehearses bool
	// What was made before there was a pod, if anything.
	reaper  *reaper.Reaper
	pause   *reaper.Child
	runtime *ociRuntime
}

// Agent implements the services. All methods may be called at the same time.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	limits  limits
	reaper  *reaper.Reaper
	runtime *ociRuntime
	images  *pull.Puller
	oom     *oomQueue
	copies  *copier
	serial  atomic.Uint64

	nfs      sync.Mutex // held while a network file system is mounted
	governor governor

	confidential atomic.Pointer[confidential]

	mu         sync.Mutex
	sandbox    *sandbox // nil before CreateSandbox
	containers map[string]*container
}

var (
	_ agent.AgentServiceService = (*Agent)(nil)
	_ agent.HealthService       = (*Agent)(nil)
	_ guest.GuestService        = (*Agent)(nil)
)

// puller returns how images are pulled, and where to.
func (c *Config) puller() pull.Config {
	of := c.Images
	of.Log, of.Marks, of.Dir = c.Log, c.Marks, filepath.Join(c.Root, "pull")
	return of
}

// New makes an agent; there can be one per process, since it reaps children.
func New(cfg Config) (*Agent, error) {
	cfg.Images = cfg.puller()
	for _, dir := range []string{cfg.StateDir, filepath.Join(cfg.StateDir, "containers"), cfg.Root} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, err
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a child subreaper: %w", err)
	}
	if cfg.reaper == nil {
		cfg.reaper = reaper.New()
	}
	if cfg.runtime == nil {
		var err error
		if cfg.runtime, err = newRuntime(cfg.Runc, cfg.StateDir, cfg.reaper); err != nil {
			return nil, err
		}
	}
	a := &Agent{
		cfg: cfg, log: cfg.Log, limits: ownLimits(), reaper: cfg.reaper, runtime: cfg.runtime, oom: newOOMQueue(),
		containers: make(map[string]*container),
	}
	a.confide(&cfg.Images)
	var err error
	if a.images, err = pull.New(cfg.Images); err != nil {
		return nil, err
	}
	a.copies = newCopier(cfg.Root)
	if err := a.recover(); err != nil || a.sandbox == nil {
		return a, err
	}
	return a, a.openConfidential()
}

// Serve serves calls on listener until ctx is over. ready is called when it
// does.
func (a *Agent) Serve(ctx context.Context, listener net.Listener, ready func()) error {
	server, err := ttrpc.NewServer(ttrpc.WithUnaryServerInterceptor(a.govern))
	if err != nil {
		return err
	}
	agent.RegisterAgentServiceService(server, a)
	agent.RegisterHealthService(server, a)
	guest.RegisterGuestService(server, a)
	go a.reaper.Run(ctx)
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	ready()
	if err := server.Serve(ctx, ttrpcframe.WholeFrames(listener)); err != nil && !errors.Is(err, ttrpc.ErrServerClosed) && ctx.Err() == nil {
		return fmt.Errorf("serve the agent protocol: %w", err)
	}
	return nil
}

// local returns where a path of a request is here.
func (a *Agent) local(path string) string {
	if rest, ok := strings.CutPrefix(path, requestRoot); ok && (rest == "" || rest[0] == '/') {
		return filepath.Join(a.cfg.Root, rest)
	}
	return path
}

func (a *Agent) find(id string) (*container, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := a.containers[id]
	if !ok || c.state.Load() == creating {
		return nil, status.Errorf(codes.NotFound, "no container %q in this sandbox", id)
	}
	return c, nil
}

// findProcess returns an exec, or the container's own process for the empty
// exec id and the container's.
func (a *Agent) findProcess(id, execID string) (*process, error) {
	c, err := a.find(id)
	if err != nil {
		return nil, err
	}
	p, ok := c.process(execID)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "no process %q in container %q", execID, id)
	}
	return p, nil
}

// fail gives an error a code for the wire, unless it has one.
func fail(code codes.Code, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	}
	if _, has := status.FromError(err); has {
		return err
	}
	return status.Error(code, err.Error())
}
