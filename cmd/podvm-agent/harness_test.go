// SPDX-License-Identifier: Apache-2.0

//go:build integration

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	agentcmd "github.com/outrigger/outrigger/internal/guest/agent"
	"github.com/outrigger/outrigger/internal/guest/hold"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"github.com/outrigger/outrigger/test/testns"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	asAgent = "OUTRIGGER_TEST_AS_AGENT"
	kata    = "/run/kata-containers"
	// patience is far beyond what anything takes on an idle machine.
	patience = 2 * time.Minute
)

// TestMain lets the test binary be the agent, and its pause process, as well.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == agentcmd.PauseName || os.Getenv(asAgent) != "" {
		main()
		return
	}
	testns.Main(m)
}

// pod is an agent with a sandbox, and what calls it.
type pod struct {
	t      *testing.T
	ctx    context.Context
	root   string // what /run/kata-containers is
	image  string
	parent string // cgroup of all containers
	agent  agent.AgentServiceService
	health agent.HealthService
	guest  guest.GuestService
	socket string
	args   []string
	cmd    *exec.Cmd
	held   *os.File // what a held agent waits on
	conn   *ttrpc.Client
}

func newPod(t *testing.T) *pod {
	p := newAgent(t)
	p.must(p.agent.CreateSandbox(p.ctx, &agent.CreateSandboxRequest{
		SandboxId: "sb", Hostname: "podhost", Dns: []string{"search svc.local", "nameserver 127.0.0.53", ""},
		Storages: []*agent.Storage{{
			Driver: "ephemeral", Source: "shm", Fstype: "tmpfs", MountPoint: kata + "/sandbox/shm",
			Options: []string{"noexec", "nosuid", "nodev", "mode=1777", "size=67108864"},
		}},
	}))
	return p
}

func newAgent(t *testing.T) *pod {
	p := unstartedAgent(t)
	p.start()
	t.Cleanup(p.end)
	return p
}

func unstartedAgent(t *testing.T) *pod {
	t.Helper()
	testns.RequireRoot(t)
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("needs runc; to run it: apt-get install runc, then sudo make test")
	}
	dir, err := os.MkdirTemp("/tmp", "pa")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	p := &pod{t: t, ctx: ctx, root: filepath.Join(dir, "root"), socket: filepath.Join(dir, "a.sock"), parent: "/outrigger-test-" + rand.Text()}
	p.image = pushImage(t)
	netns := filepath.Join(dir, "podns")
	makeNetNS(t, netns)
	p.args = []string{
		"-socket", p.socket, "-root", p.root, "-state-dir", filepath.Join(dir, "state"), "-pod-netns", netns,
		"-auth-file", filepath.Join(dir, "auth.json"), "-insecure-registries", "127.0.0.1", "-log-level", "debug",
	}
	t.Cleanup(p.removeCgroups)
	return p
}

func (p *pod) start() {
	p.t.Helper()
	p.launch()
	p.connect()
}

func (p *pod) launch() {
	p.t.Helper()
	p.cmd = exec.Command("/proc/self/exe", p.args...)
	p.cmd.Args[0] = "podvm-agent"
	p.cmd.Env = append(os.Environ(), asAgent+"=1")
	p.cmd.Stdout, p.cmd.Stderr = os.Stderr, os.Stderr
	if p.held != nil {
		p.cmd.Env, p.cmd.ExtraFiles = append(p.cmd.Env, hold.Env()), []*os.File{p.held}
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) connect() {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", p.socket)
		if err == nil {
			p.conn = ttrpc.NewClient(conn)
			break
		}
		if time.Now().After(deadline) {
			p.t.Fatal(err)
		}
	}
	p.agent, p.health, p.guest = agent.NewAgentServiceClient(p.conn), agent.NewHealthClient(p.conn), guest.NewGuestClient(p.conn)
}

// end removes the pod, stops the agent, and looks for what is left.
func (p *pod) end() {
	p.must(p.agent.DestroySandbox(p.ctx, &agent.DestroySandboxRequest{}))
	p.conn.Close()
	p.cmd.Process.Signal(unix.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("agent: %v", err)
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, p.root) {
			p.t.Errorf("still mounted: %s", line)
		}
	}
	for _, dir := range []string{p.root + "/pull/images", p.root + "/pull/containers"} {
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			p.t.Errorf("left in %s: %v", dir, left)
		}
	}
}

func (p *pod) removeCgroups() {
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*" + p.parent)
	for _, dir := range append(dirs, "/sys/fs/cgroup"+p.parent) {
		left, _ := filepath.Glob(dir + "/*")
		for _, sub := range left {
			if info, err := os.Stat(sub); err == nil && info.IsDir() {
				p.t.Errorf("cgroup left: %s", sub)
				os.Remove(sub)
			}
		}
		os.Remove(dir)
	}
}

// must fails the test for an error; its first argument is a reply that the
// caller does not need.
func (p *pod) must(_ any, err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// command returns a request for a container that runs a shell script.
func (p *pod) command(id, script string) *agent.CreateContainerRequest {
	caps := []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETUID", "CAP_SETGID", "CAP_SYS_RESOURCE"}
	mount := func(destination, kind string, options ...string) *agent.Mount {
		return &agent.Mount{Destination: destination, Source: kind, Type: kind, Options: options}
	}
	return &agent.CreateContainerRequest{
		ContainerId: id, ExecId: id,
		Storages: []*agent.Storage{{
			Driver: "image_guest_pull", Source: p.image, Fstype: "overlay", MountPoint: kata + "/" + id + "/rootfs",
		}},
		OCI: &agent.Spec{
			Version: "1.0.2-dev",
			Process: &agent.Process{
				User: &agent.User{AdditionalGids: []uint32{0}}, Args: []string{"sh", "-c", script},
				Env: []string{"PATH=/bin", "FOO=bar"}, Cwd: "/", OOMScoreAdj: 985,
				Rlimits:      []*agent.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 1 << 20, Soft: 1 << 20}},
				Capabilities: &agent.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			},
			Root: &agent.Root{Path: kata + "/" + id + "/rootfs"},
			Mounts: []*agent.Mount{
				mount("/proc", "proc", "nosuid", "noexec", "nodev"),
				mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
				mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
				mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
				mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
				mount("/sys/fs/cgroup", "cgroup", "nosuid", "noexec", "nodev", "relatime", "ro"),
				{Destination: "/dev/shm", Source: kata + "/sandbox/shm", Type: "bind", Options: []string{"rbind"}},
			},
			Annotations: map[string]string{"io.katacontainers.pkg.oci.container_type": "pod_container"},
			Linux: &agent.Linux{
				CgroupsPath: p.parent + "/" + id,
				Namespaces:  []*agent.LinuxNamespace{{Type: "ipc"}, {Type: "uts"}, {Type: "mount"}},
				Resources:   &agent.LinuxResources{},
			},
		},
	}
}

// run creates and starts a container.
func (p *pod) run(req *agent.CreateContainerRequest) string {
	p.t.Helper()
	p.must(p.agent.CreateContainer(p.ctx, req))
	p.must(p.agent.StartContainer(p.ctx, &agent.StartContainerRequest{ContainerId: req.ContainerId}))
	return req.ContainerId
}

type result struct {
	out, err string
	code     int32
}

// finish does what a shim does: both streams to their ends, then the status.
func (p *pod) finish(id, exec string) result {
	p.t.Helper()
	var r result
	var wg sync.WaitGroup
	wg.Go(func() { r.out = p.drain(p.agent.ReadStdout, id, exec) })
	wg.Go(func() { r.err = p.drain(p.agent.ReadStderr, id, exec) })
	wg.Wait()
	r.code = p.wait(id, exec)
	return r
}

type reader func(context.Context, *agent.ReadStreamRequest) (*agent.ReadStreamResponse, error)

func (p *pod) drain(read reader, id, exec string) string {
	var out strings.Builder
	if err := p.copy(&out, read, id, exec); err != nil {
		p.t.Error(err)
	}
	return out.String()
}

func (p *pod) copy(to io.Writer, read reader, id, exec string) error {
	for {
		resp, err := read(p.ctx, &agent.ReadStreamRequest{ContainerId: id, ExecId: exec, Len: 32768})
		if s, _ := status.FromError(err); s.Code() == codes.InvalidArgument && s.Message() == "eof" {
			return nil
		}
		if err != nil {
			return err
		}
		if n := len(resp.Data); n == 0 || n > 32768 {
			p.t.Errorf("answer of %d bytes", n)
		}
		if _, err := to.Write(resp.Data); err != nil {
			return err
		}
	}
}

// until reads output until it holds text.
func (p *pod) until(read reader, id, exec, text string) string {
	p.t.Helper()
	var out strings.Builder
	for !strings.Contains(out.String(), text) {
		resp, err := read(p.ctx, &agent.ReadStreamRequest{ContainerId: id, ExecId: exec, Len: 32768})
		if err != nil {
			p.t.Fatalf("wait for %q, got %q: %v", text, out.String(), err)
		}
		out.Write(resp.Data)
	}
	return out.String()
}

func (p *pod) wait(id, exec string) int32 {
	p.t.Helper()
	resp, err := p.agent.WaitProcess(p.ctx, &agent.WaitProcessRequest{ContainerId: id, ExecId: exec})
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.Status
}

func (p *pod) signal(id, exec string, sig unix.Signal) {
	p.t.Helper()
	p.must(p.agent.SignalProcess(p.ctx, &agent.SignalProcessRequest{ContainerId: id, ExecId: exec, Signal: uint32(sig)}))
}

func (p *pod) remove(id string) {
	p.t.Helper()
	p.must(p.agent.RemoveContainer(p.ctx, &agent.RemoveContainerRequest{ContainerId: id}))
}

// exec starts a shell script in a container.
func (p *pod) exec(id, exec, script string) {
	p.t.Helper()
	p.must(p.agent.ExecProcess(p.ctx, &agent.ExecProcessRequest{ContainerId: id, ExecId: exec, Process: &agent.Process{
		Args: []string{"sh", "-c", script}, Env: []string{"PATH=/bin", "FOO=bar"}, Cwd: "/",
	}}))
}

func (p *pod) write(id, exec string, data []byte) {
	p.t.Helper()
	for len(data) > 0 {
		n := min(len(data), 1<<20)
		resp, err := p.agent.WriteStdin(p.ctx, &agent.WriteStreamRequest{ContainerId: id, ExecId: exec, Data: data[:n]})
		if err != nil {
			p.t.Error(err)
			return
		}
		data = data[resp.Len:]
	}
}

func (p *pod) closeStdin(id, exec string) {
	p.t.Helper()
	p.must(p.agent.CloseStdin(p.ctx, &agent.CloseStdinRequest{ContainerId: id, ExecId: exec}))
}

func makeNetNS(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("unshare", "--net="+path, "true").CombinedOutput(); err != nil {
		t.Fatalf("make a network namespace: %v: %s", err, out)
	}
	t.Cleanup(func() { unix.Unmount(path, unix.MNT_DETACH) })
}

// pushImage serves an image of busybox in a registry of this test.
func pushImage(t *testing.T) string {
	t.Helper()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skip("needs a static busybox; to run it: apt-get install busybox-static, then sudo make test")
	}
	applets, err := exec.Command("/bin/busybox", "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(hdr tar.Header, content []byte) {
		hdr.Size = int64(len(content))
		if err := w.WriteHeader(&hdr); err != nil {
			t.Fatal(err)
		}
		w.Write(content)
	}
	for _, dir := range []string{"bin", "etc", "proc", "sys", "dev", "tmp", "root"} {
		add(tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, busybox)
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			add(tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
		}
	}
	add(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:0::/:/bin/sh\napp:x:1234:99::/:/bin/sh\n"))
	add(tar.Header{Name: "etc/group", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:\nextra:x:77:app\n"))
	w.Close()
	return push(t, buf.Bytes())
}

func push(t *testing.T, layer []byte) string {
	t.Helper()
	img, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{
		Layer: static.NewLayer(layer, types.OCIUncompressedLayer), MediaType: types.OCIUncompressedLayer,
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg, _ := img.ConfigFile()
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", runtime.GOARCH
	cfg.Config = v1.Config{Entrypoint: []string{"/bin/echo"}, Cmd: []string{"from", "image"}, User: "app", Env: []string{"PATH=/bin"}}
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/busybox:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	return ref.Name()
}
