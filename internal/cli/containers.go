// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/cli/registry"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
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
	spec    podclient.ContainerSpec

	mu      sync.Mutex
	current *podclient.Container
}

func (p *podContainer) now() *podclient.Container {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// podSpec is that of the manifest. A run is a pod of one container, of which the request says all but name and image.
func (r *runner) podSpec() corev1.PodSpec {
	if r.req.Pod != nil {
		return r.req.Pod.Spec
	}
	return corev1.PodSpec{Containers: []corev1.Container{{Name: r.req.Name, Image: r.req.Image}}}
}

// newContainer gives a container its streams: lines with its name, if there are several.
func (r *runner) newContainer(c corev1.Container) *podContainer {
	p := &podContainer{Container: c, streams: r.streams}
	if spec := r.podSpec(); len(spec.Containers)+len(spec.InitContainers) > 1 {
		p.streams.Stdout = &prefixed{to: r.streams.Stdout, prefix: "[" + c.Name + "] "}
		p.streams.Stderr = &prefixed{to: r.streams.Stderr, prefix: "[" + c.Name + "] "}
	}
	if r.image != nil && r.image.Name == c.Image {
		p.image = r.image
	}
	return p
}

// bringUp boots the VM, runs the init containers and starts the others, and returns when those with a readinessProbe
// are ready.
func (r *runner) bringUp(ctx context.Context) error {
	spec := r.podSpec()
	if r.req.Pod == nil { // what cannot be run needs no VM
		if _, err := r.containerSpec(r.newContainer(spec.Containers[0])); err != nil {
			return err
		}
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
	if err := r.awaitReady(ctx); err != nil {
		return err
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
		if p.image, err = registry.Open(ctx, p.Image, registry.Options{Platform: r.req.Platform}); err != nil {
			return err
		}
	}
	what := "container of pod " + r.req.Name
	if r.req.Pod != nil {
		what = "container " + p.Name
	}
	if p.spec, err = r.containerSpec(p); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	image, done, err := r.offerImage(ctx, p.image)
	if err != nil {
		return err
	}
	defer done()
	p.spec.Image = image
	c, err := r.pod.CreateContainer(ctx, p.spec)
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		return commandError(fmt.Errorf("%s: %w", what, err))
	}
	r.began(p, c)
	return nil
}

// began watches over a container that runs. The output of a run waits for the user's terminal.
func (r *runner) began(p *podContainer, c *podclient.Container) {
	p.mu.Lock()
	p.current = c
	p.mu.Unlock()
	if r.req.Pod != nil {
		c.Stream(p.streams)
	}
	if p.StartupProbe != nil || p.LivenessProbe != nil {
		go r.probe(p, c)
	}
}

// tend starts a container again as a policy says, unless stopping has ended, and returns its last exit code.
func (r *runner) tend(ctx, stopping context.Context, p *podContainer, policy restartPolicy) (int, error) {
	steady := steadyRun
	if r.req.Pod != nil {
		steady = lastPause
	}
	for restarts, pause := 0, firstPause; ; restarts, pause = restarts+1, min(2*pause, lastPause) {
		began, c := time.Now(), p.now()
		c.Stream(p.streams)
		code, err := await(ctx, c.Process, c.Signal)
		if c.OOMKilled() && r.req.Pod == nil {
			r.progress.say("the container ran out of memory; give it more with --memory")
		}
		if err != nil || c.OutputErr() != nil || stopping.Err() != nil || !policy.again(code, restarts) {
			return code, err
		}
		if time.Since(began) > steady {
			pause = firstPause
		}
		if r.req.Pod != nil {
			fmt.Fprintf(p.streams.Stderr, "outrigger: container %s ended with %d and is started again\n", p.Name, code)
		}
		if poll.Sleep(stopping, pause) != nil {
			return code, nil
		}
		err = r.launch(stopping, p)
		if err == nil {
			err = r.note()
		}
		switch {
		case err != nil && stopping.Err() != nil: // nobody waits for a container any more
			return code, nil
		case err != nil:
			return 0, err
		}
	}
}

// tendAll returns when no container runs any more, with the exit code of the first that failed.
func (r *runner) tendAll(stopping context.Context) (code int, err error) {
	ended := make(chan outcome, len(r.containers))
	for _, p := range r.containers {
		go func() {
			code, err := r.tend(context.Background(), stopping, p, r.req.Restart)
			ended <- outcome{code, err}
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

// watch passes streams and signals until no container runs any more, and returns the exit code.
func (r *runner) watch() (int, error) {
	r.progress.done()
	stopping, stop := context.WithCancel(context.Background())
	defer stop()
	s := session{
		process: r.containers[0].now().Process, term: r.term, signals: r.signals, grace: r.req.StopTimeout, progress: r.progress,
		ended: func(context.Context) (int, error) { return r.tendAll(stopping) }, stop: stop, signal: r.signalAll, pod: r.req.Pod != nil,
	}
	code, err := s.run(context.Background(), r.containers[0].streams)
	if errors.Is(err, podclient.ErrAgentLost) {
		err = fmt.Errorf("%w: the VM or its agent-relay has ended; %s", err, r.console())
	}
	return code, err
}

// signalAll signals all containers. What a monitor sends the container of a run when it is to stop is that one's own.
func (r *runner) signalAll(ctx context.Context, sig syscall.Signal) error {
	if own, err := parseSignal(r.record.StopSignal); err == nil && r.req.Pod == nil && r.req.Detach && sig == syscall.SIGTERM {
		sig = own
	}
	for _, p := range r.containers {
		go p.now().Signal(ctx, sig)
	}
	return nil
}

// note puts the containers on record, for exec and logs of others, and for a monitor that takes the pod over. While
// there are only init containers the pod is not running.
func (r *runner) note() error {
	if len(r.containers) == 0 {
		return nil
	}
	r.noting.Lock()
	defer r.noting.Unlock()
	r.record.ContainerID, r.record.Containers = r.containers[0].now().ID(), map[string]string{}
	for _, p := range r.containers {
		r.record.Containers[p.Name] = p.now().ID()
	}
	r.record.Steps, r.record.Status, r.record.Started = r.allSteps(), record.Running, time.Now().UTC()
	return r.node.Pods().Save(r.record)
}

// findContainers finds those of a pod whose monitor was killed. Those that ended meanwhile end again.
func (r *runner) findContainers() {
	for _, c := range r.podSpec().Containers {
		p := r.newContainer(c)
		p.spec = podclient.ContainerSpec{Env: r.record.Env, Cwd: "/"}
		r.containers = append(r.containers, p)
		r.began(p, r.pod.Container(cmp.Or(r.record.Containers[c.Name], r.record.ContainerID), r.record.TTY))
	}
}
