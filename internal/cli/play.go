// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
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
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/cli/manifest"
	"github.com/outrigger/outrigger/internal/cli/registry"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

func (a *App) playCommand() *cobra.Command {
	f := &runFlags{}
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
			f.rm = f.rm || !f.Detach && !cmd.Flags().Changed("rm")
			req, err := f.ofPod(a, p)
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), req, f.quiet)
		},
	}
	f.registerPod(a, cmd)
	cmd.Flags().VarP(list(&f.Publish, checked(parsePort)), "publish", "p", "as with run; hostPort in the manifest does the same")
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
	f.Labels, f.Annotations = p.Labels, p.Annotations
	if err := prepare(&p.Spec); err != nil {
		return nil, err
	}
	for i, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				at := fmt.Sprintf("%d:%d/%s", port.HostPort, port.ContainerPort, cmp.Or(string(port.Protocol), "TCP"))
				if err := list(&f.Publish, checked(parsePort)).Set(strings.TrimPrefix(port.HostIP+":"+at, ":")); err != nil {
					return nil, fmt.Errorf("spec.containers[%d].ports: hostPort %d: %w", i, port.HostPort, err)
				}
			}
		}
	}
	req, err := f.request(a, p.Spec.Containers[0].Image, nil)
	if err != nil {
		return nil, err
	}
	req.Pod = p
	req.Restart = restartPolicy{
		Always: p.Spec.RestartPolicy == "" || p.Spec.RestartPolicy == corev1.RestartPolicyAlways, OnFailure: p.Spec.RestartPolicy == corev1.RestartPolicyOnFailure,
	}
	if f.MilliCPU == 0 {
		req.MilliCPU = room(p.Spec, func(l corev1.ResourceList) int64 { return l.Cpu().MilliValue() }, 1000)
	}
	if f.MemoryBytes == 0 {
		req.MemoryBytes = room(p.Spec, func(l corev1.ResourceList) int64 { return l.Memory().Value() }, 256<<20)
	}
	return req, req.checkSize(a)
}

// prepare makes images of this host absolute, since a monitor has another working directory, and refuses limits
// within which no command runs.
func prepare(spec *corev1.PodSpec) error {
	var errs []error
	for kind, containers := range map[string][]corev1.Container{"initContainers": spec.InitContainers, "containers": spec.Containers} {
		for i := range containers {
			c, at := &containers[i], fmt.Sprintf("spec.%s[%d].", kind, i)
			image, err := registry.Absolute(c.Image)
			if err != nil {
				errs = append(errs, fmt.Errorf("%simage: %w", at, err))
			}
			c.Image = image
			if cpu := c.Resources.Limits.Cpu(); !cpu.IsZero() && cpu.MilliValue() < leastMilliCPU {
				errs = append(errs, fmt.Errorf("%sresources.limits.cpu: %s: want at least %dm", at, cpu.String(), leastMilliCPU))
			}
			if memory := c.Resources.Limits.Memory(); !memory.IsZero() && memory.Value() < leastMemory {
				errs = append(errs, fmt.Errorf("%sresources.limits.memory: %s: want at least %dMi", at, memory.String(), leastMemory>>20))
			}
		}
	}
	return errors.Join(errs...)
}

// room returns how much of a resource the VM needs for all limits and requests; init containers run one at a time,
// before the others. What a container without a limit needs is not known: up to usual, which a pod has that says
// nothing (of providers' defaults the smallest, QEMU's), the VM is the provider's own, 0.
func room(spec corev1.PodSpec, of func(corev1.ResourceList) int64, usual int64) (sum int64) {
	limited := true
	needs := func(c corev1.Container) int64 {
		limited = limited && of(c.Resources.Limits) > 0
		return max(of(c.Resources.Limits), of(c.Resources.Requests))
	}
	for _, c := range spec.Containers {
		sum += needs(c)
	}
	for _, c := range spec.InitContainers {
		sum = max(sum, needs(c))
	}
	if !limited && sum <= usual {
		return 0
	}
	return sum
}

// playSpec is what the manifest says of a container, and as which user of its image it runs.
func (r *runner) playSpec(p *podContainer) (spec podclient.ContainerSpec, who string, err error) {
	pod, sc := r.req.Pod, cmp.Or(p.SecurityContext, &corev1.SecurityContext{})
	if who, err = playUser(pod, p.Container); err != nil {
		return spec, "", err
	}
	fields := map[string]string{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": r.req.ID}
	fields["spec.nodeName"], _ = os.Hostname()
	if len(r.record.IPs) > 0 {
		fields["status.podIP"] = r.record.IPs[0]
	}
	spec = podclient.ContainerSpec{
		Cwd: p.WorkingDir, MemoryBytes: p.Resources.Limits.Memory().Value(), MilliCPU: p.Resources.Limits.Cpu().MilliValue(),
		ReadOnly: isTrue(sc.ReadOnlyRootFilesystem), NoNewPrivileges: sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
	}
	if spec.Env, err = pod.Env(p.Container, fields); err != nil {
		return spec, "", err
	}
	if caps := sc.Capabilities; caps != nil {
		if spec.Capabilities, err = parseCapabilities(texts(caps.Add), texts(caps.Drop)); err != nil {
			return spec, "", err
		}
	}
	command, args := manifest.ExpandAll(p.Command, spec.Env), manifest.ExpandAll(p.Args, spec.Env)
	spec.Args = arguments(p.image.Config, command, args)
	spec.Mounts, err = r.playMounts(p.Container)
	return spec, who, err
}

// rootless reports whether a container of a manifest must not run as root.
func rootless(pod *manifest.Pod, c corev1.Container) bool {
	if c.SecurityContext != nil && c.SecurityContext.RunAsNonRoot != nil {
		return *c.SecurityContext.RunAsNonRoot
	}
	return pod.Spec.SecurityContext != nil && isTrue(pod.Spec.SecurityContext.RunAsNonRoot)
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
		mount := podclient.Mount{Type: podclient.MountVolume, Source: m.Name, SubPath: m.SubPath, Destination: m.MountPath, ReadOnly: m.ReadOnly}
		switch e := v.EmptyDir; {
		case m.SubPath != "" && files != nil:
			mounts = append(mounts, file(m.MountPath, files[m.SubPath]))
			continue
		case files != nil:
			mount = podclient.Mount{Type: podclient.MountTmpfs, Destination: m.MountPath, ReadOnly: true}
		case v.HostPath != nil:
			mount.Type, mount.Source = podclient.MountBind, v.HostPath.Path
			r.progress.say("hostPath %s: the VM gets a copy; changes on one side do not show on the other", mount.Source)
		case e != nil && e.Medium == corev1.StorageMediumMemory:
			mount.Type = podclient.MountEphemeral
			if e.SizeLimit != nil {
				mount.SizeBytes = e.SizeLimit.Value()
			}
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

// prefixed writes whole lines with a prefix. Several may write to it.
type prefixed struct {
	to     io.Writer
	prefix string

	mu   sync.Mutex
	rest []byte
}

// longestLine is the most that is kept of a line that has no end yet.
const longestLine = 64 << 10

func (w *prefixed) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
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

// flush writes a last line that has no end.
func (w *prefixed) flush() {
	w.mu.Lock()
	unended := len(w.rest) > 0
	w.mu.Unlock()
	if unended {
		w.Write([]byte("\n"))
	}
}
