// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/cli/registry"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Pauses before a container is started again: doubled from the first to the last, as the kubelet does from
// 10 s, and from the start again when the container has run for a while.
const (
	firstPause = time.Second
	lastPause  = 5 * time.Minute
	// steadyRun is that while for a container of `run`, as docker has it; of a manifest it is lastPause.
	steadyRun = 10 * time.Second
)

// podContainer is a container of the pod: the one of `run`, or one of a manifest.
type podContainer struct {
	corev1.Container
	image   *registry.Image // nil until it is needed
	streams podclient.IO
	flush   func() // writes last lines that have no end

	running atomic.Pointer[runningContainer]

	// over is closed when it is not started again; code is its last exit code then.
	over chan struct{}
	code int
}

// runningContainer is the newest, with what goes on record of it.
type runningContainer struct {
	*podclient.Container
	kept record.Container
}

func (p *podContainer) now() *runningContainer { return p.running.Load() }

// podSpec is that of the manifest. A run is a pod of one container, of which the request says all but name and image.
func (r *runner) podSpec() corev1.PodSpec {
	if r.req.Pod != nil {
		return r.req.Pod.Spec
	}
	return corev1.PodSpec{Containers: []corev1.Container{{Name: r.req.Name, Image: r.req.Image}}}
}

// newContainer gives a container its streams: lines with its name, if there are several.
func (r *runner) newContainer(c corev1.Container) *podContainer {
	p := &podContainer{Container: c, streams: r.streams, over: make(chan struct{}), flush: func() {}}
	if spec := r.podSpec(); len(spec.Containers)+len(spec.InitContainers) > 1 {
		out := &prefixed{to: r.streams.Stdout, prefix: "[" + c.Name + "] "}
		errs := &prefixed{to: r.streams.Stderr, prefix: out.prefix}
		p.streams.Stdout, p.streams.Stderr = out, errs
		p.flush = func() { out.flush(); errs.flush() }
	}
	if r.image != nil && r.image.Name == c.Image && r.podSpec().Containers[0].ImagePullPolicy == c.ImagePullPolicy {
		p.image = r.image
	}
	return p
}

// bringUp boots the VM, runs the init containers and starts the others.
func (r *runner) bringUp(ctx context.Context) error {
	spec := r.podSpec()
	if r.req.Pod == nil { // what cannot be run needs no VM
		p := r.newContainer(spec.Containers[0])
		planned, err := r.containerSpec(p)
		if err != nil {
			return err
		}
		r.record.Containers = []record.Container{r.kept(p, planned)}
	}
	if err := r.createPod(ctx); err != nil {
		return err
	}
	for _, c := range spec.InitContainers {
		if err := r.initialize(ctx, r.newContainer(c)); err != nil {
			return err
		}
	}
	for _, c := range spec.Containers {
		p := r.newContainer(c)
		if err := r.launch(ctx, p); err != nil {
			return err
		}
		r.containers = append(r.containers, p)
	}
	return r.note()
}

// initialize runs an init container until it succeeds, or once if nothing is to be restarted.
func (r *runner) initialize(ctx context.Context, p *podContainer) error {
	if err := r.launch(ctx, p); err != nil {
		return err
	}
	code, err := r.tend(ctx, ctx, p, restartPolicy{OnFailure: r.req.Restart != restartPolicy{}})
	if err == nil && code != 0 {
		err = cmp.Or(ctx.Err(), error(exitError{code, fmt.Errorf("init container %s ended with %d", p.Name, code)}))
	}
	return err
}

// launch creates and starts a container, in place of one that has ended.
func (r *runner) launch(ctx context.Context, p *podContainer) (err error) {
	if old := p.now(); old != nil {
		if err := old.Remove(ctx); err != nil {
			return err
		}
	}
	if p.image == nil {
		if p.image, err = r.openImage(ctx, p.Container); err != nil {
			return err
		}
	}
	what := "container of pod " + r.req.Name
	if r.req.Pod != nil {
		what = "container " + p.Name
	}
	spec, err := r.containerSpec(p)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	image, done, err := r.offerImage(ctx, p.image)
	if err != nil {
		return err
	}
	defer done()
	spec.Image = image
	c, err := r.pod.CreateContainer(ctx, spec)
	if err == nil {
		if err = c.Start(ctx); err != nil {
			err = errors.Join(err, c.Remove(ctx))
		}
	}
	if err != nil {
		return commandError(fmt.Errorf("%s: %w", what, err))
	}
	r.began(p, c, r.kept(p, spec))
	return nil
}

// kept is what goes on record of a container.
func (r *runner) kept(p *podContainer, spec podclient.ContainerSpec) record.Container {
	return record.Container{
		Name: p.Name, Command: spec.Args, Env: spec.Env, Cwd: spec.Cwd,
		UID: spec.User.UID, GID: spec.User.GID, GIDs: spec.User.AdditionalGIDs,
		Capabilities: spec.Capabilities, NoNewPrivileges: spec.NoNewPrivileges,
		StopSignal: cmp.Or(r.req.StopSignal, p.image.Config.StopSignal),
	}
}

// began watches over a container that runs. The output of a run waits for the user's terminal.
func (r *runner) began(p *podContainer, c *podclient.Container, kept record.Container) {
	kept.ID = c.ID()
	p.running.Store(&runningContainer{c, kept})
	r.noting.Lock()
	if r.record.Started.IsZero() { // so that what a first container said is kept when another does not start
		r.record.Started = time.Now().UTC()
	}
	r.noting.Unlock()
	if r.req.Pod != nil {
		c.Stream(p.streams)
	}
	if p.StartupProbe != nil || p.LivenessProbe != nil {
		go r.probe(p, c)
	}
}

// tend starts a container again as a policy says, unless stopping has ended, and returns its last exit code. That it
// cannot be started again counts as one more run that has failed: a registry may be away for a while.
func (r *runner) tend(ctx, stopping context.Context, p *podContainer, policy restartPolicy) (int, error) {
	steady := steadyRun
	if r.req.Pod != nil {
		steady = lastPause
	}
	var failed error
	for restarts, pause := 0, firstPause; ; restarts, pause = restarts+1, min(2*pause, lastPause) {
		began, code, err := time.Now(), exitFailure, failed
		if failed == nil {
			code, err = r.attend(ctx, p)
		}
		if err != nil && failed == nil || stopping.Err() != nil || p.now().OutputErr() != nil || !policy.again(code, restarts) {
			return code, err
		}
		if time.Since(began) > steady {
			pause = firstPause
		}
		if failed == nil && r.req.Pod != nil {
			fmt.Fprintf(p.streams.Stderr, "outrigger: container %s ended with %d and is started again\n", p.Name, code)
		}
		if poll.Sleep(stopping, pause) != nil {
			return code, nil
		}
		failed = r.launch(stopping, p)
		switch {
		case failed == nil:
			r.say(p, "is not on record", r.note())
		case stopping.Err() != nil: // nobody waits for a container any more
			return code, nil
		case errors.Is(failed, podclient.ErrAgentLost):
			return 0, failed
		default:
			r.say(p, "cannot be started again, which is tried again", failed)
		}
	}
}

// say writes what went wrong with a container to its output.
func (r *runner) say(p *podContainer, what string, err error) {
	if err != nil {
		fmt.Fprintf(p.streams.Stderr, "outrigger: container %s %s: %s\n", p.Name, what, redact.Line(commandline.WithoutProtocol(err.Error())))
	}
}

// attend passes the output of a container on until it ends.
func (r *runner) attend(ctx context.Context, p *podContainer) (int, error) {
	c := p.now()
	c.Stream(p.streams)
	code, err := await(ctx, c.Process, c.Signal)
	p.flush()
	if c.OOMKilled() && r.req.Pod == nil {
		r.progress.say("the container ran out of memory; give it more with --memory")
	}
	return code, err
}

// tendAll returns when no container runs any more, with the exit code of the first that failed.
func (r *runner) tendAll(stopping context.Context) (code int, err error) {
	ended := make(chan outcome, len(r.containers))
	for _, p := range r.containers {
		go func() {
			var err error
			p.code, err = r.tend(context.Background(), stopping, p, r.req.Restart)
			close(p.over)
			ended <- outcome{p.code, err}
		}()
	}
	for range r.containers {
		out := <-ended
		if out.err != nil {
			return 0, out.err
		}
		code = cmp.Or(code, out.code)
	}
	return code, nil
}

// watch passes streams and signals until no container runs any more, and returns the exit code. early may be a signal
// that came when the containers already ran.
func (r *runner) watch(early error) (int, error) {
	r.progress.done()
	stopping, stop := context.WithCancel(context.Background())
	defer stop()
	s := session{
		process: r.containers[0].now().Process, term: r.term, signals: r.signals, progress: r.progress, signal: r.signalAll, pod: r.req.Pod != nil,
		ended: func(context.Context) (int, error) { return r.tendAll(stopping) },
		stop:  func() (time.Duration, bool) { stop(); return r.grace() },
	}
	if interrupted, ok := errors.AsType[signalError](early); ok {
		s.early = interrupted.sig
	}
	told := r.tellStarted(stopping)
	code, err := s.run(context.Background(), r.containers[0].streams)
	if err != nil {
		stop()
	}
	<-told
	if errors.Is(err, podclient.ErrAgentLost) {
		err = fmt.Errorf("%w: the VM or its agent-relay has ended; %s", err, r.console())
	}
	return code, err
}

// tellStarted says when the containers are ready; if none has a readinessProbe, before any output is passed on.
func (r *runner) tellStarted(stopping context.Context) <-chan struct{} {
	told := make(chan struct{})
	go func() {
		defer close(told)
		if err := r.awaitReady(stopping); stopping.Err() == nil {
			r.started(err)
		}
	}()
	if !slices.ContainsFunc(r.containers, func(p *podContainer) bool { return p.ReadinessProbe != nil }) {
		<-told
	}
	return told
}

// grace returns how long the containers may take to end, and whether `outrigger stop` asks.
func (r *runner) grace() (time.Duration, bool) {
	grace, asked := r.node.Pods().AskedToStop(r.req.ID)
	if !asked {
		return r.req.StopTimeout, false
	}
	r.asked.Store(true)
	return grace, true
}

// signalAll signals all containers. SIGTERM becomes their own signal to stop, except when a user sends it to a run in
// the foreground; `outrigger stop` sends that to their first process.
func (r *runner) signalAll(ctx context.Context, sig syscall.Signal) error {
	asked := r.asked.Load()
	own := sig == syscall.SIGTERM && (r.req.Pod != nil || r.req.Detach || asked)
	for _, p := range r.containers {
		send := p.now().Signal
		if own {
			sig = stopSignal(p.now().kept)
		}
		if own && asked {
			send = p.now().Process.Signal
		}
		go send(ctx, sig)
	}
	return nil
}

// stopSignal is SIGTERM unless the container has one of its own. An image may name what there is not.
func stopSignal(c record.Container) syscall.Signal {
	if sig, err := parseSignal(c.StopSignal); err == nil {
		return sig
	}
	return syscall.SIGTERM
}

// note puts the containers on record, for exec and logs of others, and for a monitor that takes the pod over. While
// there are only init containers the pod is not running.
func (r *runner) note() error {
	if len(r.containers) == 0 {
		return nil
	}
	r.noting.Lock()
	defer r.noting.Unlock()
	r.record.Containers = nil
	for _, p := range r.containers {
		r.record.Containers = append(r.record.Containers, p.now().kept)
	}
	r.record.Steps, r.record.Status, r.record.Started = r.allSteps(), record.Running, time.Now().UTC()
	return r.node.Pods().Save(r.record)
}

// findContainers finds those of a pod whose monitor was killed. Those that ended meanwhile end again.
func (r *runner) findContainers() {
	for i, c := range r.podSpec().Containers {
		p := r.newContainer(c)
		r.containers = append(r.containers, p)
		r.began(p, r.pod.Container(r.record.Containers[i].ID, r.record.TTY), r.record.Containers[i])
	}
}
