// SPDX-License-Identifier: Apache-2.0

// Package agentpolicy writes the policy of a pod: what the node may ask of the agent in its VM. It makes requests to ask a policy about, too.
package agentpolicy

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/cli/manifest"
)

//go:embed rules.rego
var rules string

// podRule is before the JSON of a pod, with which its policy ends.
const podRule = "\npod := "

// Image is one that a container runs.
type Image struct {
	// Pinned is its reference by digest.
	Pinned string
	Config v1.Config
}

// Options say what a policy lets pass beside the pod as it is.
type Options struct {
	// Exec is any command, Logs what containers write, Stdin what is written to them.
	Exec, Logs, Stdin bool
	// Resolve asks a registry.
	Resolve func(ctx context.Context, reference string) (*Image, error)
}

// container is one of the pod's, as its request to the agent has to be.
type container struct {
	Digest          string   `json:"digest"`
	Args            []string `json:"args"`
	Cwd             string   `json:"cwd"`
	UID             int64    `json:"uid"`
	Readonly        bool     `json:"readonly"`
	NoNewPrivileges bool     `json:"no_new_privileges"`
	Capabilities    []string `json:"capabilities"`
	Env             []string `json:"env"`
	// EnvNames are of variables whose values are not in the pod.
	EnvNames []string `json:"env_names"`
	Mounts   []mount  `json:"mounts"`
	// Files are what kubelet mounts by itself.
	Files   []string `json:"files"`
	Devices []string `json:"devices"`
}

type mount struct {
	Destination string `json:"destination"`
	Readonly    bool   `json:"readonly,omitempty"`
	Type        string `json:"type,omitempty"`
}

type pod struct {
	Containers  map[string]container `json:"containers"`
	Mounts      []mount              `json:"mounts"`
	EnvPatterns []string             `json:"env_patterns"`
	Exec        [][]string           `json:"exec"`
	Sysctls     map[string]string    `json:"sysctls"`
	Allow       map[string]bool      `json:"allow"`
}

// kernelMounts are those that containerd gives every container.
var kernelMounts = []mount{
	{Destination: "/proc", Type: "proc"}, {Destination: "/dev", Type: "tmpfs"}, {Destination: "/dev/pts", Type: "devpts"}, {Destination: "/dev/mqueue", Type: "mqueue"},
	{Destination: "/sys", Type: "sysfs"}, {Destination: "/sys/fs/cgroup", Type: "cgroup"},
}

// files are what kubelet mounts in every container.
var files = []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/shm"}

const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// ofServices are the variables that kubelet adds for Services (https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables).
const ofServices = `^[A-Z][A-Z0-9_]*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)=`

// defaultCapabilities are those of a container (containerd's oci.WithDefaultUnixCaps, Docker's documentation of runtime privileges).
var defaultCapabilities = strings.Fields("CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE")

// Generate returns the policy of a pod, whose images it pins by digest. What cannot be said in a policy is an error by its field.
func Generate(ctx context.Context, p *corev1.Pod, opts Options) (string, error) {
	data := pod{
		Containers: map[string]container{}, Mounts: kernelMounts, Exec: [][]string{}, Sysctls: map[string]string{},
		EnvPatterns: []string{"^HOSTNAME=", "^TERM=xterm$"},
		Allow:       map[string]bool{"exec": opts.Exec, "logs": opts.Logs, "stdin": opts.Stdin},
	}
	if p.Spec.EnableServiceLinks == nil || *p.Spec.EnableServiceLinks {
		data.EnvPatterns = append(data.EnvPatterns, ofServices)
	} else {
		data.EnvPatterns = append(data.EnvPatterns, strings.Replace(ofServices, "[A-Z][A-Z0-9_]*", "KUBERNETES", 1))
	}
	if s := p.Spec.SecurityContext; s != nil {
		for _, sysctl := range s.Sysctls {
			data.Sysctls[sysctl.Name] = sysctl.Value
		}
	}
	for at, list := range map[string][]corev1.Container{"spec.initContainers": p.Spec.InitContainers, "spec.containers": p.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if data.Containers[c.Name].Digest != "" {
				return "", fmt.Errorf("%s: two containers have the name %s", at, c.Name)
			}
			made, err := ofContainer(ctx, p, c, opts)
			if err != nil {
				return "", fmt.Errorf("%s[%d] (%s): %w", at, i, c.Name, err)
			}
			data.Containers[c.Name] = *made
			data.Exec = append(data.Exec, commands(c)...)
		}
	}
	if len(p.Spec.EphemeralContainers) > 0 {
		return "", errors.New("spec.ephemeralContainers: they are added to pods that run, and cannot be in a manifest")
	}
	text, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		return "", err
	}
	return rules + podRule + string(text) + "\n", nil
}

func ofContainer(ctx context.Context, p *corev1.Pod, c *corev1.Container, opts Options) (*container, error) {
	image, err := opts.Resolve(ctx, c.Image)
	if err != nil {
		return nil, err
	}
	c.Image = image.Pinned
	_, digest, _ := strings.Cut(image.Pinned, "@")
	made := &container{Digest: digest, Cwd: "/", Env: slices.Clone(image.Config.Env), EnvNames: []string{}, Mounts: []mount{}, Devices: []string{}}
	for _, dir := range []string{image.Config.WorkingDir, c.WorkingDir} {
		if dir != "" {
			made.Cwd = dir
		}
	}
	if err := made.variables(c); err != nil {
		return nil, err
	}
	if made.Args, err = arguments(c, &image.Config, made.EnvNames); err != nil {
		return nil, err
	}
	if err := made.security(p, c, image.Config.User); err != nil {
		return nil, err
	}
	for _, m := range c.VolumeMounts {
		made.Mounts = append(made.Mounts, mount{Destination: m.MountPath, Readonly: m.ReadOnly})
	}
	for _, d := range c.VolumeDevices {
		made.Devices = append(made.Devices, d.DevicePath)
	}
	made.Files = append(slices.Clone(files), serviceAccount, terminationPath(c))
	return made, nil
}

func terminationPath(c *corev1.Container) string {
	if c.TerminationMessagePath != "" {
		return c.TerminationMessagePath
	}
	return corev1.TerminationMessagePathDefault
}

// variables adds the pod's to those of the image.
func (made *container) variables(c *corev1.Container) error {
	if len(c.EnvFrom) > 0 {
		return errors.New("envFrom: the names are not in the pod: name each variable, with valueFrom")
	}
	values := map[string]string{}
	for _, e := range c.Env {
		made.Env = slices.DeleteFunc(made.Env, func(of string) bool { return strings.HasPrefix(of, e.Name+"=") })
		if e.ValueFrom != nil {
			made.EnvNames = append(made.EnvNames, e.Name)
			continue
		}
		values[e.Name] = manifest.Expand(e.Value, values)
		for _, name := range made.EnvNames {
			if strings.Contains(e.Value, "$("+name+")") {
				made.EnvNames = append(made.EnvNames, e.Name)
				delete(values, e.Name)
				break
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		made.Env = append(made.Env, name+"="+values[name])
	}
	if !slices.ContainsFunc(made.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }) {
		made.Env = append(made.Env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") // containerd's
	}
	return nil
}

func arguments(c *corev1.Container, image *v1.Config, unknown []string) ([]string, error) {
	var env []string
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			env = append(env, e.Name+"="+e.Value)
		}
	}
	for _, text := range slices.Concat(c.Command, c.Args) {
		for _, name := range unknown {
			if strings.Contains(text, "$("+name+")") {
				return nil, fmt.Errorf("command: the value of $(%s) is not in the pod: let the program read the variable", name)
			}
		}
	}
	command, args := manifest.ExpandAll(c.Command, env), manifest.ExpandAll(c.Args, env)
	switch { // https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/
	case len(command) == 0 && len(args) == 0:
		command, args = image.Entrypoint, image.Cmd
	case len(command) == 0:
		command = image.Entrypoint
	}
	if all := slices.Concat(command, args); len(all) > 0 {
		return all, nil
	}
	return nil, errors.New("neither the pod nor the image says what is to run")
}

// security takes user and privileges of the container, the pod and the image.
func (made *container) security(p *corev1.Pod, c *corev1.Container, imageUser string) error {
	own, ofPod := c.SecurityContext, p.Spec.SecurityContext
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	switch {
	case own.RunAsUser != nil:
		made.UID = *own.RunAsUser
	case ofPod != nil && ofPod.RunAsUser != nil:
		made.UID = *ofPod.RunAsUser
	case imageUser != "":
		name, _, _ := strings.Cut(imageUser, ":")
		uid, err := strconv.ParseInt(name, 10, 64)
		if err != nil {
			return fmt.Errorf("the image's user is %q, and its number only the image knows: set securityContext.runAsUser", imageUser)
		}
		made.UID = uid
	}
	if own.Privileged != nil && *own.Privileged {
		return errors.New("securityContext.privileged: nothing is left that a policy could refuse")
	}
	made.Readonly = own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem
	made.NoNewPrivileges = own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation
	names := slices.Clone(defaultCapabilities)
	if own.Capabilities != nil {
		for _, drop := range own.Capabilities.Drop {
			names = slices.DeleteFunc(names, func(n string) bool { return drop == "ALL" || plain(drop) == n })
		}
		for _, add := range own.Capabilities.Add {
			if add == "ALL" {
				return errors.New("securityContext.capabilities.add: ALL: name each")
			}
			names = append(names, plain(add))
		}
	}
	made.Capabilities = []string{}
	for _, name := range names {
		made.Capabilities = append(made.Capabilities, "CAP_"+name)
	}
	return nil
}

func plain(c corev1.Capability) string { return strings.TrimPrefix(string(c), "CAP_") }

// commands are those of probes and of the life cycle.
func commands(c *corev1.Container) (all [][]string) {
	add := func(exec *corev1.ExecAction) {
		if exec != nil {
			all = append(all, exec.Command)
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil {
			add(probe.Exec)
		}
	}
	if c.Lifecycle != nil {
		for _, handler := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if handler != nil {
				add(handler.Exec)
			}
		}
	}
	return all
}
