// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/cli/manifest"
	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/cli/registry"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/procid"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/internal/timeline"
)

// runRequest holds the checked arguments of `run`. The monitor of a detached pod gets
// it as JSON.
type runRequest struct {
	Root, Socket, Provider string
	// Images is the folder of the images of this host, and Pull whether they are used.
	Images      string
	Pull        registry.Policy
	AdaptorArgs []string

	ID, Name, Image, Platform string
	Command, Env              []string
	User, Workdir, Hostname   string
	// Entrypoint replaces the image's entrypoint and command; nil does not.
	Entrypoint []string
	Labels     map[string]string
	ReadOnly   bool
	// Capabilities are all that the container has; nil means the default.
	Capabilities             []string
	Publish                  []string
	PublishAll               bool
	StopSignal               string
	ShmBytes                 int64
	DNS                      []string
	Mounts                   []podclient.Mount
	Annotations              map[string]string
	MilliCPU, MemoryBytes    int64
	Interactive, TTY         bool
	NoNetwork                bool
	PullTimeout, StopTimeout time.Duration
	BootTimeout              time.Duration
	Keep, Detach             bool
	LogLimit                 int64
	Timeline                 bool
	Restart                  restartPolicy
	// Pod is what `play` runs, in place of one container.
	Pod *manifest.Pod `json:",omitempty"`
}

// requestOf returns what a pod was asked for with.
func requestOf(p *record.Pod) (*runRequest, error) {
	req := &runRequest{}
	if err := json.Unmarshal(p.Request, req); err != nil {
		return nil, fmt.Errorf("record of pod %s: %w", p.Name, err)
	}
	return req, nil
}

func (q *runRequest) namespace() string {
	if q.Pod != nil {
		return q.Pod.Namespace
	}
	return "default"
}

// vmSize returns the VM's processors and memory; 0 for the provider's default.
func (q *runRequest) vmSize() (vcpus, memoryMiB int) {
	if q.MemoryBytes > 0 {
		memoryMiB = int((q.MemoryBytes+1<<20-1)>>20) + guestMemory
	}
	return int((q.MilliCPU + 999) / 1000), memoryMiB
}

// guestMemory is the memory of a VM beyond the container's limit, in MiB: for kernel
// and agent, and for the image, which is in memory.
const guestMemory = 256

// teardownTimeout bounds the removal of one pod.
const teardownTimeout = 3 * time.Minute

// runner runs one pod from its beginning to its end.
type runner struct {
	app      *App
	node     *node.Node
	req      *runRequest
	progress progress
	signals  <-chan os.Signal
	term     *terminal
	// streams are the container's stdin, stdout and stderr.
	streams podclient.IO
	// started is called when the containers run and are ready, or with the reason why one will not be ready.
	started func(error)

	steps   []timeline.Step
	image   *registry.Image
	record  *record.Pod
	network node.Network
	ports   []forwarder
	client  *podclient.Client
	pod     *podclient.Pod
	// containers are those that are to run, without init containers.
	containers []*podContainer
	noting     sync.Mutex
	// asked says that `outrigger stop` ends the pod.
	asked atomic.Bool
}

// run runs the pod and returns the container's exit code. Whatever happens, it removes
// everything of the pod but, with Keep, its record.
func (r *runner) run(ctx context.Context) (code int, err error) {
	ctx, stopWatch := r.interruptible(ctx)
	defer stopWatch()
	began := time.Now()
	if r.image, err = r.openImage(ctx, r.podSpec().Containers[0]); err != nil {
		return 0, r.orSignal(ctx, err)
	}
	r.step("open-image", began)
	if err := r.admit(ctx); err != nil {
		return 0, r.orSignal(ctx, err)
	}
	err = r.bringUp(ctx)
	stopWatch()
	if err == nil {
		code, err = r.watch(context.Cause(ctx))
	}
	err = r.orSignal(ctx, err)
	return code, errors.Join(err, r.tearDown(code, err))
}

// interruptible returns a context that a signal ends, for the time until the container
// runs. The returned function stops watching signals, for others to handle them.
func (r *runner) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case sig := <-r.signals:
				if ends(sig) {
					cancel(signalError{sig.(syscall.Signal)})
				}
			}
		}
	}()
	return ctx, sync.OnceFunc(func() { close(stop); <-stopped })
}

// orSignal returns err, or the signal that caused it by ending ctx.
func (r *runner) orSignal(ctx context.Context, err error) error {
	var interrupted signalError
	if err != nil && errors.As(context.Cause(ctx), &interrupted) {
		return exitError{128 + int(interrupted.sig), interrupted}
	}
	return err
}

// admit writes the pod's record and makes sure that an adaptor runs, under the lock of
// the node.
func (r *runner) admit(ctx context.Context) error {
	unlock, err := r.node.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	defer func(began time.Time) { r.step("ensure-adaptor", began) }(time.Now())
	r.app.sweep(ctx, r.node)
	pod := &record.Pod{
		ID: r.req.ID, Name: r.req.Name, Namespace: r.req.namespace(), Image: r.req.Image, Status: record.Creating,
		Owner: procid.Self(), Detached: r.req.Detach, Keep: r.req.Keep, Socket: r.req.Socket,
		Network: !r.req.NoNetwork, TTY: r.req.TTY, Created: time.Now().UTC(), Labels: r.req.Labels,
	}
	if pod.Request, err = json.Marshal(r.req); err != nil {
		return err
	}
	if pod.Started, err = r.earlier(); err != nil {
		return err
	}
	r.record = pod
	if r.req.Socket == "" {
		r.node = r.app.poolFor(ctx, r.node, r.req)
		r.record.OwnAdaptor, r.record.Socket, r.record.Pool = true, r.node.Socket(), r.node.Pool
		err = r.node.EnsureAdaptor(ctx)
	} else {
		err = r.app.checkSocket()
	}
	if err == nil {
		err = r.node.Pods().Create(r.record)
	}
	if err != nil {
		return errors.Join(err, r.node.StopIfUnused(context.WithoutCancel(ctx)))
	}
	return nil
}

// earlier returns when a pod ran that is started again. Another with its name is an error.
func (r *runner) earlier() (started time.Time, err error) {
	pods, err := r.node.Pods().List()
	for _, p := range pods {
		if p.ID == r.req.ID && !p.Live() {
			started = p.Started
		} else if p.Name == r.req.Name {
			return started, fmt.Errorf("there is a pod named %q already; remove it with `outrigger rm %s` or take another --name", p.Name, p.Name)
		}
	}
	return started, err
}

// createPod attaches the network and boots the VM.
func (r *runner) createPod(ctx context.Context) (err error) {
	spec := podclient.PodSpec{
		ID: r.req.ID, Name: r.req.Name, Namespace: r.record.Namespace, Hostname: r.req.Hostname,
		Annotations: r.req.Annotations, StartTimeout: r.req.BootTimeout, ShmBytes: r.req.ShmBytes,
	}
	spec.VCPUs, spec.MemoryMiB = r.req.vmSize()
	r.client = podclient.New(r.record.Socket)
	if info, err := r.client.Info(ctx); err == nil {
		r.record.Provider = info.Provider
	}
	booting := "booting a VM (" + r.record.Provider + ")"
	if r.record.Pool != "" {
		booting = "taking a VM of pool " + r.record.Pool
	}
	spec.OnEvent = show(r.progress, booting)
	began := time.Now()
	if err := r.attachNetwork(&spec); err != nil {
		return err
	}
	if err := r.publish(r.wantedPorts()); err != nil {
		return err
	}
	r.step("attach-network", began)
	if r.pod, err = r.client.Create(ctx, spec); err != nil {
		return describeStart(r.req.Name, err)
	}
	r.record.AgentSocket = r.pod.AgentSocket()
	if r.record.OwnAdaptor {
		if unlock, err := r.node.Lock(ctx); err == nil {
			defer unlock()
			r.node.NoteRelay(ctx)
		}
	}
	return nil
}

func (r *runner) attachNetwork(spec *podclient.PodSpec) (err error) {
	spec.DNS = r.req.DNS
	if r.req.NoNetwork {
		return nil
	}
	if len(spec.DNS) == 0 {
		lines, hint := node.ResolvConf()
		if spec.DNS = lines; hint != "" {
			r.progress.say("note: %s", hint)
		}
	}
	if r.network, err = r.app.network(r.node); err != nil {
		return err
	}
	port, netns, err := r.network.AttachNetns(r.req.ID)
	if err != nil {
		return fmt.Errorf("network of pod %s: %w; `outrigger doctor` lists what is missing, --network none does without", r.req.Name, err)
	}
	spec.Netns = netns
	for _, a := range port.Addrs {
		r.record.IPs = append(r.record.IPs, a.Addr().String())
		spec.Hosts = append(spec.Hosts, a.Addr().String()+" "+r.req.Hostname)
	}
	return nil
}

// describeStart adds the end of the console, where a guest logs its errors.
func describeStart(name string, err error) error {
	var start *podclient.StartError
	if !errors.As(err, &start) || len(start.Console) == 0 || strings.Contains(err.Error(), "console ends with") {
		return fmt.Errorf("VM of pod %s: %w", name, err) // no console, or the error quotes it already
	}
	lines := strings.Split(strings.TrimSpace(string(start.Console)), "\n")
	return fmt.Errorf("VM of pod %s: %w\nlast lines of its console:\n  %s", name, err, strings.Join(lines[max(0, len(lines)-10):], "\n  "))
}

// openImage finds a container's image, and pulls it to this host if that was asked for.
func (r *runner) openImage(ctx context.Context, c corev1.Container) (*registry.Image, error) {
	opts := registry.Options{Platform: r.req.Platform, Policy: r.req.Pull, Report: showPull(r.progress)}
	opts.Store = registry.Store{Dir: r.req.Images, Wait: sayWaiting(r.progress)}
	switch c.ImagePullPolicy {
	case corev1.PullAlways:
		opts.Policy = registry.Guest
	case corev1.PullIfNotPresent:
		opts.Policy = registry.Missing
	case corev1.PullNever:
		opts.Policy = registry.Never
	}
	return registry.Open(ctx, c.Image, opts)
}

// offerImage returns the reference for the guest to pull. It serves an image of this
// host until done is called.
func (r *runner) offerImage(ctx context.Context, image *registry.Image) (ref string, done func(), err error) {
	if image.Reference != "" && !image.Loopback() {
		return image.Reference, func() {}, nil
	}
	info, err := r.client.Info(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("asking the adaptor where its VMs see this host: %w", err)
	}
	addr, err := netip.ParseAddr(info.NodeAddress)
	if err != nil && (image.Held || image.Reference != "") { // the guest pulls the same digest
		if ref, err := image.Pinned(ctx); ref != "" || err != nil {
			return ref, func() {}, err
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("the adaptor of provider %s does not know where its VMs see this host, so image %s cannot be served to them; push it to a registry that they reach", info.Provider, image.Name)
	}
	server, err := registry.Serve(addr, image)
	if err != nil {
		return "", nil, err
	}
	return server.Reference(), func() { server.Close() }, nil
}

func (r *runner) console() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	data, err := r.client.Console(ctx, r.req.ID, 2048)
	if err != nil || len(data) == 0 {
		return "its console is not available"
	}
	return "the end of its console:\n" + strings.TrimSpace(string(redact.Terminal(data)))
}

// tearDown removes the pod, and with the last pod the daemons that were started here.
func (r *runner) tearDown(code int, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), teardownTimeout)
	defer cancel()
	go r.giveUpOnInterrupts(ctx, cancel)
	if err := r.removePod(ctx); err != nil {
		return fmt.Errorf("removing pod %s: %w; `outrigger rm %s` tries again", r.req.Name, err, r.req.Name)
	}
	return r.app.forget(ctx, r.node, r.record, func(p *record.Pod) {
		p.ExitCode, p.Finished = code, time.Now().UTC()
		if cause != nil {
			p.Error = commandline.WithoutProtocol(cause.Error())
			p.ExitCode = exitFailure
		}
	})
}

func (r *runner) giveUpOnInterrupts(ctx context.Context, cancel context.CancelFunc) {
	for interrupts := 0; interrupts < 2; {
		select {
		case <-ctx.Done():
			return
		case sig := <-r.signals:
			if sig == unix.SIGINT {
				interrupts++
				r.progress.say("removing the pod; press ctrl-C again to leave it as it is")
			}
		}
	}
	cancel()
}

func (r *runner) removePod(ctx context.Context) error {
	var errs []error
	for _, port := range r.ports {
		port.Close()
	}
	if r.client != nil { // also after a failed Create, during which the adaptor may have died
		var err error
		if r.pod != nil {
			err = r.pod.Stop(ctx)
		} else {
			err = r.client.StopVM(ctx, r.req.ID)
		}
		if err != nil && r.record.OwnAdaptor { // the adaptor may have been killed
			err = r.app.stopVM(ctx, r.node, r.record)
		}
		errs = append(errs, err)
	}
	if r.network != nil {
		errs = append(errs, r.network.Detach(r.req.ID))
	}
	return errors.Join(errs...)
}
