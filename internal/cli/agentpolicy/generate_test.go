// SPDX-License-Identifier: Apache-2.0

package agentpolicy

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/guest/policy"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"

func resolve(context.Context, string) (*Image, error) {
	return &Image{Pinned: "registry.example.com/web@" + digest, Config: v1.Config{Entrypoint: []string{"/web"}, Cmd: []string{"-v"}, Env: []string{"PATH=/bin", "LEVEL=1"}, WorkingDir: "/srv", User: "1000:1000"}}, nil
}

const webPod = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  securityContext: {sysctls: [{name: net.core.somaxconn, value: "100"}]}
  containers:
    - name: web
      image: registry.example.com/web:1
      args: [--listen, $(PORT)]
      env: [{name: PORT, value: "80"}, {name: LEVEL, value: "2"}, {name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}}]
      volumeMounts: [{name: data, mountPath: /data}, {name: conf, mountPath: /conf, readOnly: true}]
      readinessProbe: {exec: {command: [cat, /ready]}}
      securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}
  volumes: [{name: data, emptyDir: {}}, {name: conf, configMap: {name: c}}]
`

func podOf(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

const shared = "/run/kata-containers/shared/containers/c1-"

// asAsked is the request of the pod's container, as the shim sends it.
func asAsked() *agent.CreateContainerRequest {
	capabilities := []string{"CAP_NET_BIND_SERVICE"}
	return &agent.CreateContainerRequest{
		ContainerId: "c1",
		Storages: []*agent.Storage{
			{Driver: "image_guest_pull", Source: "registry.example.com/web@" + digest, MountPoint: "/run/kata-containers/c1/rootfs"},
			{Driver: "local", Source: "local", MountPoint: "/run/kata-containers/shared/containers/s1/rootfs/local/data"},
		},
		OCI: &agent.Spec{
			Root: &agent.Root{Path: "/run/kata-containers/c1/rootfs", Readonly: true},
			Process: &agent.Process{
				Args: []string{"/web", "--listen", "80"}, Cwd: "/srv", User: &agent.User{UID: 1000}, NoNewPrivileges: true,
				Env:          []string{"PATH=/bin", "HOSTNAME=web", "PORT=80", "LEVEL=2", "TOKEN=secret", "KUBERNETES_SERVICE_HOST=10.0.0.1", "DB_PORT_5432_TCP=tcp://10.0.0.2:5432"},
				Capabilities: &agent.LinuxCapabilities{Bounding: capabilities, Effective: capabilities, Permitted: capabilities},
			},
			Annotations: map[string]string{"io.kubernetes.cri.container-name": "web", "io.katacontainers.pkg.oci.container_type": "pod_container"},
			Mounts: []*agent.Mount{
				{Destination: "/proc", Type: "proc", Source: "proc"}, {Destination: "/etc/hosts", Type: "bind", Source: shared + "hosts"},
				{Destination: "/data", Type: "bind", Source: "/run/kata-containers/shared/containers/s1/rootfs/local/data"},
				{Destination: "/conf", Type: "bind", Source: shared + "conf", Options: []string{"rbind", "ro"}},
				{Destination: "/dev/termination-log", Type: "bind", Source: shared + "log"},
			},
			Linux: &agent.Linux{},
		},
	}
}

func compiled(t *testing.T, opts Options) *policy.Policy {
	t.Helper()
	opts.Resolve = resolve
	text, err := Generate(t.Context(), podOf(t, webPod), opts)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(text, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

func allow(t *testing.T, p *policy.Policy, request proto.Message) error {
	t.Helper()
	return p.Allow(t.Context(), string(request.ProtoReflect().Descriptor().Name()), policy.Input(request))
}

// TestContainerAsAsked: the pod's own container is made, and one that differs in anything is not, with the reason.
func TestContainerAsAsked(t *testing.T) {
	p := compiled(t, Options{})
	if err := allow(t, p, asAsked()); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*agent.CreateContainerRequest){
		`no container "other"`:  func(r *agent.CreateContainerRequest) { r.OCI.Annotations["io.kubernetes.cri.container-name"] = "other" },
		"not the one of digest": func(r *agent.CreateContainerRequest) { r.Storages[0].Source = "registry.example.com/web:1" },
		`image ["a", "registry`: func(r *agent.CreateContainerRequest) {
			r.Storages = append([]*agent.Storage{{Driver: "image_guest_pull", Source: "a"}}, r.Storages...)
		},
		`arguments ["/bin/sh"], want`: func(r *agent.CreateContainerRequest) { r.OCI.Process.Args = []string{"/bin/sh"} },
		"working directory /tmp":      func(r *agent.CreateContainerRequest) { r.OCI.Process.Cwd = "/tmp" },
		"user 0, want 1000":           func(r *agent.CreateContainerRequest) { r.OCI.Process.User = &agent.User{} },
		"the root file system":        func(r *agent.CreateContainerRequest) { r.OCI.Root.Readonly = false },
		"new privileges":              func(r *agent.CreateContainerRequest) { r.OCI.Process.NoNewPrivileges = false },
		"capability CAP_SYS_ADMIN":    func(r *agent.CreateContainerRequest) { r.OCI.Process.Capabilities.Ambient = []string{"CAP_SYS_ADMIN"} },
		"variable LD_PRELOAD": func(r *agent.CreateContainerRequest) {
			r.OCI.Process.Env = append(r.OCI.Process.Env, "LD_PRELOAD=/data/x.so")
		},
		"variable LEVEL":           func(r *agent.CreateContainerRequest) { r.OCI.Process.Env = append(r.OCI.Process.Env, "LEVEL=1") },
		"mount /web of":            func(r *agent.CreateContainerRequest) { r.OCI.Mounts[2].Destination = "/web" },
		"mount /data of /etc":      func(r *agent.CreateContainerRequest) { r.OCI.Mounts[2].Source = "/etc" },
		"mount /data of /run/kata": func(r *agent.CreateContainerRequest) { r.OCI.Mounts[2].Source = shared + "../../../../etc" },
		"mount /conf of":           func(r *agent.CreateContainerRequest) { r.OCI.Mounts[3].Options = []string{"rbind", "rw"} },
		"(overlay)": func(r *agent.CreateContainerRequest) {
			r.OCI.Mounts[2].Type, r.OCI.Mounts[2].Options = "overlay", []string{"lowerdir=/run/podvm-agent"}
		},
		"mount /proc of":               func(r *agent.CreateContainerRequest) { r.OCI.Mounts[0].Type = "bind" },
		"storage /etc of driver local": func(r *agent.CreateContainerRequest) { r.Storages[1].MountPoint = "/etc" },
		"driver bind":                  func(r *agent.CreateContainerRequest) { r.Storages[1].Driver = "bind" },
		"hooks": func(r *agent.CreateContainerRequest) {
			r.OCI.Hooks = &agent.Hooks{Prestart: []*agent.Hook{{Path: "/bin/sh"}}}
		},
		"device /dev/sda": func(r *agent.CreateContainerRequest) { r.OCI.Linux.Devices = []*agent.LinuxDevice{{Path: "/dev/sda"}} },
		"sysctl kernel.core_pattern": func(r *agent.CreateContainerRequest) {
			r.OCI.Linux.Sysctl = map[string]string{"kernel.core_pattern": "|/x"}
		},
	} {
		request := asAsked()
		change(request)
		if err := allow(t, p, request); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestOtherRequests(t *testing.T) {
	strict, open := compiled(t, Options{}), compiled(t, Options{Exec: true, Logs: true, Stdin: true})
	pause := &agent.CreateContainerRequest{OCI: &agent.Spec{Annotations: map[string]string{"io.katacontainers.pkg.oci.container_type": "pod_sandbox"}, Linux: &agent.Linux{Sysctl: map[string]string{"net.core.somaxconn": "100", "net.ipv4.ip_unprivileged_port_start": "0"}}}}
	other := proto.CloneOf(pause)
	other.OCI.Linux.Sysctl["net.ipv4.ip_forward"] = "1"
	// As containerd makes it of the container's own.
	probe := &agent.ExecProcessRequest{Process: proto.CloneOf(asAsked().OCI.Process)}
	probe.Process.Args = []string{"cat", "/ready"}
	changed := func(change func(*agent.Process)) proto.Message {
		other := proto.CloneOf(probe)
		change(other.Process)
		return other
	}
	shell := &agent.ExecProcessRequest{Process: &agent.Process{Args: []string{"sh"}}}
	for name, c := range map[string]struct {
		request      proto.Message
		strict, open bool
	}{
		"pause":              {pause, true, true},
		"pause with sysctls": {other, false, false},
		"sandbox":            {&agent.CreateSandboxRequest{Storages: []*agent.Storage{{Driver: "ephemeral", MountPoint: "/run/kata-containers/sandbox/shm"}}}, true, true},
		"sandbox elsewhere":  {&agent.CreateSandboxRequest{Storages: []*agent.Storage{{Driver: "ephemeral", MountPoint: "/etc"}}}, false, false},
		"probe":              {probe, true, true},
		"probe, preloaded":   {changed(func(p *agent.Process) { p.Env = append(p.Env, "LD_PRELOAD=/conf/x.so") }), false, true},
		"probe of others":    {changed(func(p *agent.Process) { p.Env[0] = "PATH=/conf" }), false, true},
		"probe as root":      {changed(func(p *agent.Process) { p.User = &agent.User{} }), false, true},
		"probe elsewhere":    {changed(func(p *agent.Process) { p.Cwd = "/conf" }), false, true},
		"probe with more":    {changed(func(p *agent.Process) { p.Capabilities.Ambient = []string{"CAP_SYS_ADMIN"} }), false, true},
		"shell":              {shell, false, true},
		"logs":               {&agent.ReadStreamRequest{}, false, true},
		"standard input":     {&agent.WriteStreamRequest{}, false, true},
		"a file":             {&agent.CopyFileRequest{Path: shared + "hosts"}, true, true},
		"a file elsewhere":   {&agent.CopyFileRequest{Path: "/etc/passwd"}, false, false},
		"a file above":       {&agent.CopyFileRequest{Path: shared + "../../../../../etc/passwd"}, false, false},
		"statistics":         {&agent.StatsContainerRequest{}, true, true},
		"another policy":     {&agent.SetPolicyRequest{}, false, false},
		"time":               {&agent.SetGuestDateTimeRequest{}, false, false},
		"interfaces":         {&agent.UpdateInterfaceRequest{}, false, false},
	} {
		if err := allow(t, strict, c.request); (err == nil) != c.strict {
			t.Errorf("%s, strict: %v", name, err)
		}
		if err := allow(t, open, c.request); (err == nil) != c.open {
			t.Errorf("%s, open: %v", name, err)
		}
	}
}

// TestWhatNoPolicySays: an error by the field.
func TestWhatNoPolicySays(t *testing.T) {
	for want, pair := range map[string][2]string{
		"spec.containers[0] (web): envFrom":       {"      args:", "      envFrom: [{configMapRef: {name: c}}]\n      args:"},
		"securityContext.privileged":              {"{readOnlyRoot", "{privileged: true, readOnlyRoot"},
		"capabilities.add: ALL":                   {"add: [NET_BIND_SERVICE]", "add: [ALL]"},
		"the value of $(TOKEN) is not in the pod": {"$(PORT)", "$(TOKEN)"},
		"two containers have the name":            {"  containers:", "  initContainers: [{name: web, image: a}]\n  containers:"},
		"spec.ephemeralContainers":                {"  containers:", "  ephemeralContainers: [{name: e, image: a}]\n  containers:"},
	} {
		p := podOf(t, strings.Replace(webPod, pair[0], pair[1], 1))
		if text, err := Generate(t.Context(), p, Options{Resolve: resolve}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, %v; want %q", text, err, want)
		}
	}
	named := func(context.Context, string) (*Image, error) {
		return &Image{Pinned: "web@" + digest, Config: v1.Config{Cmd: []string{"a"}, User: "nobody"}}, nil
	}
	if _, err := Generate(t.Context(), podOf(t, webPod), Options{Resolve: named}); err == nil || !strings.Contains(err.Error(), "set securityContext.runAsUser") {
		t.Errorf("%v", err)
	}
}

// BenchmarkGenerated asks a policy of 20 containers for one of them, and for a command that none of them may run, for which it looks at all.
// It measures processor time of the thread, so that other load on the machine does not count.
func BenchmarkGenerated(b *testing.B) {
	p := policyOf20(b)
	foreign := proto.CloneOf(asAsked().OCI.Process)
	foreign.Args, foreign.Env = []string{"cat", "/ready"}, append(foreign.Env, "LD_PRELOAD=/data/x.so")
	for name, c := range map[string]struct {
		request proto.Message
		allowed bool
	}{"container": {asAsked(), true}, "refused": {&agent.ExecProcessRequest{Process: foreign}, false}} {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread() // here: each case is a goroutine of its own
			defer runtime.UnlockOSThread()
			var took []time.Duration
			for b.Loop() {
				start := processorTime(b)
				err := p.Allow(b.Context(), string(c.request.ProtoReflect().Descriptor().Name()), policy.Input(c.request))
				took = append(took, processorTime(b)-start)
				if (err == nil) != c.allowed {
					b.Fatal(err)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
		})
	}
}

func policyOf20(b *testing.B) *policy.Policy {
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(webPod), p); err != nil {
		b.Fatal(err)
	}
	for i := range 19 {
		c := p.Spec.Containers[0].DeepCopy()
		c.Name += strings.Repeat("x", i+1)
		p.Spec.Containers = append(p.Spec.Containers, *c)
	}
	text, err := Generate(b.Context(), p, Options{Resolve: resolve})
	if err != nil {
		b.Fatal(err)
	}
	compiled, err := policy.Compile(text, nil)
	if err != nil {
		b.Fatal(err)
	}
	return compiled
}

func processorTime(b *testing.B) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		b.Fatal(err)
	}
	return time.Duration(now.Nano())
}
