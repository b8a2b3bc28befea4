// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/cli/manifest"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/cli/registry"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// Pauses before a container is started again: doubled from the first to the last, as the kubelet does from
// 10 s, and from the start again when the container has run for longer than the last.
const (
	firstPause = time.Second
	lastPause  = 5 * time.Minute
)

func (a *App) playCommand() *cobra.Command {
	f := &runFlags{network: "default", logLimit: "16MiB", shmSize: "64MiB"}
	f.BootTimeout, f.PullTimeout = podclient.StartTimeout, podclient.PullTimeout
	cmd := &cobra.Command{
		Use: "play FILE", Short: "Run a Pod of Kubernetes from YAML, without a cluster", Args: cobra.ExactArgs(1),
		Long: `Run the Pod in FILE (- is standard input) in a VM: init containers one after the other, then all
containers, with environment, volumes (emptyDir, ConfigMaps and Secrets of the same file,
hostPath as a copy), probes and restartPolicy. A field that is not known, or has no effect
here, is an error by its path. Each line of output has its container's name before it, if
there are several.

The exit code is that of the first container that failed. IMAGE is as with outrigger run.`,
		Example: "  outrigger play pod.yaml\n  outrigger play -d pod.yaml && outrigger logs -f NAME",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.readManifest(args[0])
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			req, err := f.ofPod(a, p)
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), req, f.quiet)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.Detach, "detach", "d", false, "run in the background, and print the pod's name when its containers are ready")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress")
	flags.BoolVar(&f.rm, "rm", true, "remove the record of the pod when it ends; --rm=false keeps log and exit code until `outrigger rm`")
	flags.StringArrayVarP(&f.Publish, "publish", "p", nil, "as with run; hostPort in the manifest does the same")
	f.registerVM(a, flags)
	return cmd
}

func (a *App) readManifest(file string) (*manifest.Pod, error) {
	if file == "-" {
		return manifest.Read(a.Stdin)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return manifest.Read(f)
}

// ofPod returns the request for a pod.
func (f *runFlags) ofPod(a *App, p *manifest.Pod) (*runRequest, error) {
	p.Namespace = cmp.Or(p.Namespace, "default")
	f.Name, f.Hostname = p.Name, p.Spec.Hostname
	f.StopTimeout = 30 * time.Second // Kubernetes' default
	if grace := p.Spec.TerminationGracePeriodSeconds; grace != nil {
		f.StopTimeout = time.Duration(max(*grace, 1)) * time.Second
	}
	for key, value := range p.Labels {
		f.labels = append(f.labels, key+"="+value)
	}
	for key, value := range p.Annotations {
		f.annotations = append(f.annotations, key+"="+value)
	}
	for i, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				at := fmt.Sprintf("%d:%d/%s", port.HostPort, port.ContainerPort, cmp.Or(string(port.Protocol), "TCP"))
				f.Publish = append(f.Publish, strings.TrimPrefix(port.HostIP+":"+at, ":"))
			}
		}
		image, err := registry.Absolute(c.Image)
		if err != nil {
			return nil, err
		}
		p.Spec.Containers[i].Image = image
	}
	req, err := f.request(a, p.Spec.Containers[0].Image, nil)
	if err != nil {
		return nil, err
	}
	req.Pod = p
	for _, c := range p.Spec.Containers { // the VM has room for what flags do not say
		milli, memory := c.Resources.Limits.Cpu(), c.Resources.Limits.Memory()
		if f.cpus == "" {
			req.MilliCPU += max(milli.MilliValue(), c.Resources.Requests.Cpu().MilliValue())
		}
		if f.memory == "" {
			req.MemoryBytes += max(memory.Value(), c.Resources.Requests.Memory().Value())
		}
	}
	return req, nil
}

// played is one container of a pod from a manifest.
type played struct {
	corev1.Container
	streams podclient.IO
	spec    podclient.ContainerSpec

	mu        sync.Mutex
	container *podclient.Container
}

func (p *played) now() *podclient.Container {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.container
}

// playUp runs the init containers and starts the others, and returns when those with a readinessProbe are ready.
func (r *runner) playUp(ctx context.Context) error {
	if err := r.createPod(ctx); err != nil {
		return err
	}
	for _, c := range r.req.Pod.Spec.InitContainers {
		if err := r.initialize(ctx, r.newPlayed(c)); err != nil {
			return err
		}
	}
	for _, c := range r.req.Pod.Spec.Containers {
		p := r.newPlayed(c)
		if err := r.launch(ctx, p); err != nil {
			return err
		}
		r.played = append(r.played, p)
	}
	return r.awaitReady(ctx)
}

// newPlayed gives a container its streams: lines with its name, if there are several.
func (r *runner) newPlayed(c corev1.Container) *played {
	p := &played{Container: c, streams: podclient.IO{Stdin: strings.NewReader(""), Stdout: r.streams.Stdout, Stderr: r.streams.Stderr}}
	if len(r.req.Pod.Spec.Containers)+len(r.req.Pod.Spec.InitContainers) > 1 {
		p.streams.Stdout = &prefixed{to: r.streams.Stdout, prefix: "[" + c.Name + "] "}
		p.streams.Stderr = &prefixed{to: r.streams.Stderr, prefix: "[" + c.Name + "] "}
	}
	return p
}

// initialize runs an init container until it succeeds, or once if nothing is to be restarted.
func (r *runner) initialize(ctx context.Context, p *played) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if err := r.launch(ctx, p); err != nil {
			return err
		}
		code, err := p.now().Wait(ctx)
		if err != nil || code == 0 {
			return err
		}
		if r.req.Pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
			return exitError{code, fmt.Errorf("init container %s ended with %d", p.Name, code)}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// launch creates and starts a container, in place of one that has ended.
func (r *runner) launch(ctx context.Context, p *played) error {
	if old := p.now(); old != nil {
		if err := old.Remove(ctx); err != nil {
			return err
		}
	}
	image, err := registry.Open(ctx, p.Image, registry.Options{})
	if err != nil {
		return err
	}
	spec, err := r.playSpec(image, p)
	if err != nil {
		return fmt.Errorf("container %s: %w", p.Name, err)
	}
	p.spec = spec
	ref, done, err := r.offerImage(ctx, image)
	if err != nil {
		return err
	}
	defer done()
	spec.Image = ref
	c, err := r.pod.CreateContainer(ctx, spec)
	if err == nil {
		if err = c.Start(ctx); err == nil {
			c.Stream(p.streams)
		}
	}
	if err != nil {
		return commandError(fmt.Errorf("container %s: %w", p.Name, err))
	}
	p.mu.Lock()
	p.container = c
	p.mu.Unlock()
	go r.probe(p, c)
	return nil
}

// playSpec is what the image and the manifest say of a container.
func (r *runner) playSpec(image *registry.Image, p *played) (spec podclient.ContainerSpec, err error) {
	pod, cfg := r.req.Pod, image.Config
	who, err := playUser(pod, p.Container)
	if err != nil {
		return spec, err
	}
	user, err := image.User(who)
	if err != nil {
		return spec, err
	}
	sc := cmp.Or(p.SecurityContext, &corev1.SecurityContext{})
	if user.UID == 0 && (isTrue(sc.RunAsNonRoot) || sc.RunAsNonRoot == nil && pod.Spec.SecurityContext != nil && isTrue(pod.Spec.SecurityContext.RunAsNonRoot)) {
		return spec, errors.New("runAsNonRoot: its user is root")
	}
	fields := map[string]string{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": r.req.ID}
	fields["spec.nodeName"], _ = os.Hostname()
	if len(r.record.IPs) > 0 {
		fields["status.podIP"] = r.record.IPs[0]
	}
	env, err := pod.Env(p.Container, fields)
	if err != nil {
		return spec, err
	}
	spec = podclient.ContainerSpec{
		Name: p.Name, Cwd: cmp.Or(p.WorkingDir, cfg.WorkingDir, "/"), Env: mergeEnv(r.baseEnv(user), cfg.Env, env),
		User:        podclient.User{UID: user.UID, GID: user.GID, AdditionalGIDs: user.Additional},
		MemoryBytes: p.Resources.Limits.Memory().Value(), MilliCPU: p.Resources.Limits.Cpu().MilliValue(),
		ReadOnly: isTrue(sc.ReadOnlyRootFilesystem), CreateTimeout: r.req.PullTimeout, OnEvent: show(r.progress, ""),
		NoNewPrivileges: sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
	}
	if caps := sc.Capabilities; caps != nil {
		if spec.Capabilities, err = parseCapabilities(texts(caps.Add), texts(caps.Drop)); err != nil {
			return spec, err
		}
	}
	spec.Args = playArgs(p.Container, cfg.Entrypoint, cfg.Cmd, env)
	if spec.Mounts, err = r.playMounts(p.Container); err != nil {
		return spec, err
	}
	if len(r.played) == 0 { // exec goes to the first container
		r.record.Command, r.record.Env, r.record.Cwd, r.record.Capabilities = spec.Args, spec.Env, spec.Cwd, spec.Capabilities
		r.record.UID, r.record.GID, r.record.GIDs = user.UID, user.GID, user.Additional
	}
	return spec, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

func texts[T ~string](list []T) (all []string) {
	for _, t := range list {
		all = append(all, string(t))
	}
	return all
}

// playUser returns USER[:GROUP] of a container; empty means the image's.
func playUser(pod *manifest.Pod, c corev1.Container) (string, error) {
	user, group := (*int64)(nil), (*int64)(nil)
	if s := pod.Spec.SecurityContext; s != nil {
		user, group = s.RunAsUser, s.RunAsGroup
	}
	if s := c.SecurityContext; s != nil {
		user, group = cmp.Or(s.RunAsUser, user), cmp.Or(s.RunAsGroup, group)
	}
	switch {
	case user == nil && group != nil:
		return "", errors.New("runAsGroup needs runAsUser")
	case user == nil:
		return "", nil
	case group == nil:
		return strconv.FormatInt(*user, 10), nil
	}
	return fmt.Sprintf("%d:%d", *user, *group), nil
}

// playArgs puts command and args in the place of the image's entrypoint and command.
func playArgs(c corev1.Container, entrypoint, command, env []string) []string {
	values := map[string]string{}
	for _, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		values[key] = value
	}
	var args []string
	for _, text := range slices.Concat(c.Command, c.Args) {
		args = append(args, manifest.Expand(text, values))
	}
	switch {
	case len(c.Command) > 0:
		return args
	case len(c.Args) > 0:
		return append(slices.Clone(entrypoint), args...)
	}
	return slices.Concat(entrypoint, command)
}

func (r *runner) playMounts(c corev1.Container) (mounts []podclient.Mount, err error) {
	for _, m := range c.VolumeMounts {
		v, err := r.req.Pod.Volume(m.Name)
		if err != nil {
			return nil, err
		}
		files, err := r.req.Pod.Files(m)
		if err != nil {
			return nil, err
		}
		mount := podclient.Mount{Type: podclient.MountVolume, Source: m.Name, Destination: m.MountPath, ReadOnly: m.ReadOnly}
		switch e := v.EmptyDir; {
		case m.SubPath != "":
			mounts = append(mounts, file(m.MountPath, files[m.SubPath]))
			continue
		case files != nil:
			mount = podclient.Mount{Type: podclient.MountTmpfs, Destination: m.MountPath}
		case v.HostPath != nil:
			mount.Type, mount.Source = podclient.MountBind, v.HostPath.Path
			r.progress.say("hostPath %s: the VM gets a copy; changes on one side do not show on the other", mount.Source)
		case e != nil && e.Medium == corev1.StorageMediumMemory:
			mount.Type = podclient.MountEphemeral
			if e.SizeLimit != nil {
				mount.SizeBytes = e.SizeLimit.Value()
			}
		case e != nil && e.SizeLimit != nil:
			return nil, fmt.Errorf("volume %s: sizeLimit needs medium: Memory", m.Name)
		}
		mounts = append(mounts, mount)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			mounts = append(mounts, file(path.Join(m.MountPath, name), files[name]))
		}
	}
	return mounts, nil
}

func file(at string, data []byte) podclient.Mount {
	if data == nil {
		data = []byte{}
	}
	return podclient.Mount{Type: podclient.MountBind, Source: path.Base(at), Destination: at, ReadOnly: true, Data: data}
}

// playWatch tends the containers until none runs any more, and returns the exit code of the first that failed.
func (r *runner) playWatch() (code int, err error) {
	r.progress.done()
	stopping, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan outcome, len(r.played))
	for _, p := range r.played {
		go func() {
			code, err := r.tend(stopping, p)
			ended <- outcome{code, err}
		}()
	}
	var kill <-chan time.Time
	for left := len(r.played); left > 0; {
		select {
		case out := <-ended:
			if left--; out.err != nil {
				return 0, out.err
			}
			code = cmp.Or(code, out.code)
		case sig := <-r.signals:
			if ends(sig) && stopping.Err() == nil {
				stop()
				r.signalAll(syscall.SIGTERM)
				kill = time.After(r.req.StopTimeout)
			} else if ends(sig) {
				r.signalAll(syscall.SIGKILL)
			}
		case <-kill:
			r.signalAll(syscall.SIGKILL)
		}
	}
	return code, nil
}

func (r *runner) signalAll(sig syscall.Signal) {
	for _, p := range r.played {
		go p.now().Signal(context.Background(), sig)
	}
}

// tend starts a container again as the pod's restartPolicy says, and returns its last exit code.
func (r *runner) tend(stopping context.Context, p *played) (int, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		code, err := p.now().Wait(context.Background())
		policy := r.req.Pod.Spec.RestartPolicy
		if err != nil || stopping.Err() != nil || policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && code == 0 {
			return code, err
		}
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		fmt.Fprintf(p.streams.Stderr, "outrigger: container %s ended with %d and is started again\n", p.Name, code)
		select {
		case <-stopping.Done():
			return code, nil
		case <-time.After(pause):
		}
		if err := r.launch(stopping, p); err != nil {
			if stopping.Err() != nil {
				return code, nil
			}
			return 0, err
		}
		if err := r.notePlayed(); err != nil {
			return 0, err
		}
	}
}

// notePlayed puts the containers on record, for exec and logs of others.
func (r *runner) notePlayed() error {
	r.noting.Lock()
	defer r.noting.Unlock()
	r.record.ContainerID, r.record.Containers = r.played[0].now().ID(), map[string]string{}
	for _, p := range r.played {
		r.record.Containers[p.Name] = p.now().ID()
	}
	r.record.Status, r.record.Started = record.Running, time.Now().UTC()
	return r.node.Pods().Save(r.record)
}

// takeOverPlayed finds the containers of a pod whose monitor was killed. Those that ended meanwhile end again.
func (r *runner) takeOverPlayed() {
	for _, c := range r.req.Pod.Spec.Containers {
		p := r.newPlayed(c)
		p.container = r.pod.Container(r.record.Containers[c.Name], false)
		p.spec = podclient.ContainerSpec{Env: r.record.Env, Cwd: "/"}
		p.container.Stream(p.streams)
		go r.probe(p, p.container)
		r.played = append(r.played, p)
	}
}

// prefixed writes whole lines with a prefix.
type prefixed struct {
	to     io.Writer
	prefix string
	rest   []byte
}

// longestLine is the most that is kept of a line that has no end yet.
const longestLine = 64 << 10

func (w *prefixed) Write(data []byte) (int, error) {
	w.rest = append(w.rest, data...)
	for len(w.rest) > 0 {
		end := bytes.IndexByte(w.rest, '\n') + 1
		if end == 0 && len(w.rest) < longestLine {
			break
		}
		line := w.rest[:cmp.Or(end, len(w.rest))]
		if _, err := fmt.Fprintf(w.to, "%s%s\n", w.prefix, bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return 0, err
		}
		w.rest = w.rest[len(line):]
	}
	return len(data), nil
}
