// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/localnet"
	"github.com/outrigger/outrigger/test/fakeagent"
)

// TestMain lets the test binary be the monitor that `run --detach` starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "monitor" {
		os.Exit(Main())
	}
	os.Setenv("DOCKER_CONFIG", "/nonexistent")
	os.Setenv("OUTRIGGER_CONFIG", "/dev/null")
	os.Unsetenv("REMOTE_HYPERVISOR_ENDPOINT")
	os.Exit(m.Run())
}

// stand is a fake node and a root folder of its own.
type stand struct {
	t     *testing.T
	node  *fakeagent.Node
	root  string
	cache string
	image string
	net   *fakeNetwork
}

func newStand(t *testing.T) *stand {
	t.Helper()
	n, err := fakeagent.Start()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "or")
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{t: t, node: n, root: filepath.Join(dir, "r"), cache: filepath.Join(dir, "images"), image: "oci:" + testImage(t), net: &fakeNetwork{address: "192.0.2.7/24"}}
	t.Cleanup(func() {
		if code, _, stderr := s.run("rm", "--all"); code != 0 {
			t.Errorf("rm --all: %d: %s", code, stderr)
		}
		if n.VMs() != 0 {
			t.Errorf("%d VMs are left", n.VMs())
		}
		if _, err := os.Stat(s.root); !errors.Is(err, os.ErrNotExist) {
			entries, _ := os.ReadDir(s.root)
			t.Errorf("the root folder is left with %v", entries)
		}
		if left := s.net.attached(); left != 0 {
			t.Errorf("%d network ports are left", left)
		}
		n.Close()
		os.RemoveAll(dir)
	})
	return s
}

// fakeNetwork counts ports.
type fakeNetwork struct {
	mu    sync.Mutex
	ports map[string]bool
	// address is the pods'.
	address string
}

func (f *fakeNetwork) AttachNetns(id string) (*localnet.Port, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ports == nil {
		f.ports = map[string]bool{}
	}
	f.ports[id] = true
	return &localnet.Port{Addrs: []netip.Prefix{netip.MustParsePrefix(f.address)}}, "/run/netns/fake", nil
}

func (f *fakeNetwork) Detach(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.ports, id)
	return nil
}

func (f *fakeNetwork) attached() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ports)
}

// testImage writes an OCI layout. The fake agent runs commands of this host, so
// only its configuration matters.
func testImage(t *testing.T, changes ...func(*v1.Config)) string {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	passwd := "root:x:0:0::/root:/bin/sh\nweb:x:101:102::/srv:/bin/sh\n"
	w.WriteHeader(&tar.Header{Name: "etc/passwd", Size: int64(len(passwd)), Mode: 0o644, Typeflag: tar.TypeReg})
	io.WriteString(w, passwd)
	w.Close()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	cfg, _ := img.ConfigFile()
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", runtime.GOARCH
	cfg.Config = v1.Config{Entrypoint: []string{"/bin/sh"}, Cmd: []string{"-c", "echo default"}, Env: []string{"FROM=image", "PATH=/bin:/usr/bin"}, User: "web"}
	for _, change := range changes {
		change(&cfg.Config)
	}
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "image")
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (s *stand) app(stdin io.Reader, stdout, stderr io.Writer) *App {
	return &App{Stdin: stdin, Stdout: stdout, Stderr: stderr, OpenNetwork: func(*node.Node) (node.Network, error) { return s.net, nil }}
}

// run runs one command line.
func (s *stand) run(args ...string) (code int, stdout, stderr string) {
	return s.runIn("", args...)
}

func (s *stand) runIn(stdin string, args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	var out, errs buffer
	args = append([]string{"--root", s.root, "--image-cache", s.cache, "--socket", s.node.Socket}, args...)
	code = s.app(strings.NewReader(stdin), &out, &errs).Run(args)
	return code, out.String(), errs.String()
}

// sh is the command line that runs a script in a pod.
func (s *stand) sh(script string, flags ...string) []string {
	return append(append([]string{"run", "-q"}, flags...), s.image, "--", "-c", script)
}

// buffer may be read while it is written.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(data)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestRunReturnsOutputAndExitCode(t *testing.T) {
	s := newStand(t)
	for script, want := range map[string]int{"echo out; echo err >&2": 0, "echo out; echo err >&2; exit 3": 3, "echo out; echo err >&2; kill -9 $$": 137} {
		code, stdout, stderr := s.run(s.sh(script)...)
		if code != want || stdout != "out\n" || stderr != "err\n" {
			t.Errorf("%s: code %d, stdout %q, stderr %q", script, code, stdout, stderr)
		}
	}
	if code, stdout, _ := s.run("run", "-q", s.image); code != 0 || stdout != "default\n" {
		t.Errorf("the image's own command: code %d, stdout %q", code, stdout)
	}
}

// TestErrorsNameThePage: each error that does is on it, in the section of the anchor.
func TestErrorsNameThePage(t *testing.T) {
	path, anchor, _ := strings.Cut(troubleshooting, "#")
	data, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	section := ""
	for text := range strings.SplitSeq(string(data), "\n## ") {
		heading, _, _ := strings.Cut(text, "\n")
		if strings.ReplaceAll(strings.ToLower(strings.ReplaceAll(heading, "`", "")), " ", "-") == anchor {
			section = text
		}
	}
	for _, part := range onPage {
		if !strings.Contains(section, part) {
			t.Errorf("%s has no section %s with %q", path, anchor, part)
		}
		once := explain(errors.New("x: " + part + "y"))
		if !strings.HasSuffix(once, "\nmore: "+troubleshooting) || explain(errors.New(once)) != once {
			t.Errorf("%q, and again %q", once, explain(errors.New(once)))
		}
	}
	if text := explain(errors.New("another")); text != "another" {
		t.Error(text)
	}
}

func TestRunPassesStdin(t *testing.T) {
	s := newStand(t)
	data := strings.Repeat("0123456789\n", 50_000)
	if code, stdout, stderr := s.runIn(data, s.sh("cat", "-i")...); code != 0 || stdout != data {
		t.Errorf("code %d, %d bytes of %d came back, stderr %q", code, len(stdout), len(data), stderr)
	}
	if code, stdout, _ := s.runIn(data, s.sh("cat; echo end")...); code != 0 || stdout != "end\n" {
		t.Errorf("without -i: code %d, stdout %.20q", code, stdout)
	}
}

func TestRunBuildsTheContainer(t *testing.T) {
	s := newStand(t)
	out := &buffer{}
	done := make(chan int)
	go func() {
		args := append([]string{"--root", s.root, "--socket", s.node.Socket}, s.sh("echo up; read x", "-i", "--name", "p1", "--cpus", "1.5", "--memory", "64MiB",
			"-e", "A=1", "-e", "FROM=flag", "--dns", "192.0.2.53", "--annotation", "io.katacontainers.config.hypervisor.machine_type=big", "-w", "/tmp")...)
		in, stdin, _ := os.Pipe()
		go func() {
			eventually(t, "output", func() bool { return out.String() != "" })
			a := s.node.Agents()[0]
			vm := a.VM().Annotations
			for key, want := range map[string]string{
				"io.katacontainers.config.hypervisor.default_vcpus": "2", "io.katacontainers.config.hypervisor.default_memory": "320",
				"io.katacontainers.config.hypervisor.machine_type": "big", "io.kubernetes.cri.sandbox-name": "p1",
			} {
				if vm[key] != want {
					t.Errorf("%s = %q, want %q", key, vm[key], want)
				}
			}
			for _, req := range a.Created() {
				p := req.OCI.Process
				if p.User.UID != 101 || p.User.GID != 102 || p.Cwd != "/tmp" {
					t.Errorf("user %v, cwd %s", p.User, p.Cwd)
				}
				env := strings.Join(p.Env, " ")
				if !strings.Contains(env, "FROM=flag") || !strings.Contains(env, "A=1") || !strings.Contains(env, "HOME=/srv") || strings.Contains(env, "FROM=image") {
					t.Errorf("environment %v", p.Env)
				}
				if req.OCI.Linux.Resources.Memory.Limit != 64<<20 || req.OCI.Linux.Resources.CPU.Quota != 150000 {
					t.Errorf("limits %v", req.OCI.Linux.Resources)
				}
				if !strings.HasPrefix(req.Storages[0].Source, "127.0.0.1:") || !strings.Contains(req.Storages[0].Source, "@sha256:") {
					t.Errorf("the guest is to pull %s", req.Storages[0].Source)
				}
			}
			if a.Sandbox().Dns[0] != "nameserver 192.0.2.53" || a.VM().NetworkNamespacePath != "/run/netns/fake" {
				t.Errorf("DNS %v, netns %q", a.Sandbox().Dns, a.VM().NetworkNamespacePath)
			}
			stdin.Close()
		}()
		done <- s.app(in, out, io.Discard).Run(args)
	}()
	<-done
}

func TestCommandThatCannotRun(t *testing.T) {
	s := newStand(t)
	if code, _, stderr := s.run("run", "-q", "--name", "p", s.image, "/nonexistent/command"); code != 2 { // busybox or dash answers itself
		t.Logf("code %d: %s", code, stderr)
	}
	s.detached("p1", "sleep 1000")
	for command, want := range map[string]int{"no-such-command": 127, "/etc/passwd": 126, "/no/such/file": 127} {
		if code, _, stderr := s.run("exec", "p1", command); code != want {
			t.Errorf("exec %s: code %d, want %d: %s", command, code, want, stderr)
		}
	}
}

// detached starts a detached pod.
func (s *stand) detached(name, script string, flags ...string) {
	s.t.Helper()
	flags = append([]string{"--detach", "--network", "none", "--name", name}, flags...)
	if code, stdout, stderr := s.run(s.sh(script, flags...)...); code != 0 || stdout != name+"\n" {
		s.t.Fatalf("run --detach: code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestDetachedPod(t *testing.T) {
	s := newStand(t)
	s.detached("p1", "echo one; echo two >&2; while [ ! -e "+s.root+"/go ]; do sleep 0.02; done; printf end; exit 7", "--rm=false")
	eventually(t, "output in the log", func() bool {
		_, stdout, stderr := s.run("logs", "p1")
		return stdout == "one\n" && stderr == "two\n"
	})
	if code, stdout, stderr := s.runIn("in", "exec", "-i", "-e", "X=1", "p1", "--", "sh", "-c", "cat; echo $X $FROM; exit 5"); code != 5 || stdout != "in1 image\n" {
		t.Errorf("exec: code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	var pods []listedPod
	_, stdout, _ := s.run("ps", "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &pods); err != nil || len(pods) != 1 || pods[0].Status != "running" || pods[0].Name != "p1" {
		t.Errorf("ps: %v %s", err, stdout)
	}
	if code, _, stderr := s.run("rm", "p1"); code != 125 || !strings.Contains(stderr, "-f") {
		t.Errorf("rm of a running pod: code %d, %s", code, stderr)
	}
	if code, stdout, stderr := s.run("stats"); code != 0 || !strings.Contains(stdout, "3.0 MiB   64.0 MiB") {
		t.Errorf("stats: code %d\n%s%s", code, stdout, stderr)
	}
	follow := make(chan string)
	go func() {
		_, stdout, _ := s.run("logs", "-f", "p1")
		follow <- stdout
	}()
	if err := os.WriteFile(s.root+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := <-follow; got != "one\nend" {
		t.Errorf("logs -f: %q", got)
	}
	_, stdout, _ = s.run("ps", "-a")
	if !strings.Contains(stdout, "exited (7)") {
		t.Errorf("ps -a:\n%s", stdout)
	}
	os.Remove(s.root + "/go")
	if code, stdout, _ := s.run("rm", "p1"); code != 0 || stdout != "p1\n" {
		t.Errorf("rm: code %d, %q", code, stdout)
	}
}

// TestDetachedPodIsKept, as with docker: with --rm, and after a start that failed, nothing is.
func TestDetachedPodIsKept(t *testing.T) {
	s := newStand(t)
	s.detached("p1", "echo there; exit 3")
	if code, stdout, _ := s.run("wait", "p1"); code != 0 || stdout != "3\n" {
		t.Errorf("wait: %d, %q", code, stdout)
	}
	for range 2 {
		if code, stdout, stderr := s.run("logs", "p1"); code != 0 || stdout != "there\n" {
			t.Errorf("logs: %d, %q, %s", code, stdout, stderr)
		}
		s.node.StartErr = errors.New("no capacity left")
		if code, _, stderr := s.run("start", "p1"); code != 125 || !strings.Contains(stderr, "no capacity left") {
			t.Errorf("start: %d, %s", code, stderr)
		}
	}
	s.run("rm", "p1")
	s.run(s.sh("true", "--detach", "--network", "none")...)
	s.node.StartErr = nil
	s.detached("p2", "exit 0", "--rm")
	eventually(t, "the pods are gone", func() bool {
		_, err := os.Stat(s.root)
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestRemoveForce(t *testing.T) {
	s := newStand(t)
	s.detached("p1", "trap '' TERM; while :; do sleep 0.1; done")
	for range 2 {
		if code, _, stderr := s.run("rm", "-f", "p1"); code != 0 {
			t.Errorf("rm -f: code %d, %s", code, stderr)
		}
	}
	if code, _, stderr := s.run("rm", "p1"); code == 0 || !strings.Contains(stderr, "p1") {
		t.Errorf("rm of a pod that is gone: code %d, %s", code, stderr)
	}
}

func TestKilledMonitorIsReplaced(t *testing.T) {
	s := newStand(t)
	s.detached("p1", "while [ ! -e "+s.root+"/go ]; do sleep 0.02; done; echo after; exit 4", "--rm=false")
	n := &node.Node{Root: s.root}
	s.killMonitor("p1")
	if code, _, stderr := s.run("exec", "p1", "true"); code != 0 {
		t.Errorf("exec: %d %s", code, stderr)
	}
	os.WriteFile(s.root+"/go", nil, 0o600)
	eventually(t, "the exit code is on record", func() bool {
		now, err := n.Pods().Find("p1")
		return err == nil && !now.Live() && now.ExitCode == 4
	})
	if _, stdout, _ := s.run("logs", "p1"); stdout != "after\n" {
		t.Errorf("log %q", stdout)
	}
	os.Remove(s.root + "/go")
}

// TestMonitorAndVMAreGone: what the pod said and how it ended is known until rm.
func TestMonitorAndVMAreGone(t *testing.T) {
	s := newStand(t)
	s.detached("p1", "echo one; exec sleep 1000")
	eventually(t, "it is up", func() bool { _, out, _ := s.run("logs", "p1"); return out == "one\n" })
	s.killMonitor("p1")
	s.node.Agents()[0].Drop()
	if code, _, stderr := s.run(s.sh("true")...); code != 0 { // the next pod has what is left removed
		t.Fatalf("run: %d, %s", code, stderr)
	}
	if code, out, stderr := s.run("ps", "-a", "--format", "{{.Names}} {{.State}}"); code != 0 || out != "p1 exited\n" {
		t.Errorf("ps: %d, %q, %s", code, out, stderr)
	}
	if _, out, stderr := s.run("wait", "p1"); out != "125\n" {
		t.Errorf("wait: %q, %s", out, stderr)
	}
	if _, out, stderr := s.run("logs", "p1"); out != "one\n" {
		t.Errorf("logs: %q, %s", out, stderr)
	}
	if n := s.node.VMs(); n != 0 {
		t.Errorf("%d VMs are left", n)
	}
	if code, _, stderr := s.run("rm", "p1"); code != 0 {
		t.Errorf("rm: %d, %s", code, stderr)
	}
}

func TestSignalsReachTheContainer(t *testing.T) {
	for _, test := range []struct {
		name, script string
		signals      []syscall.Signal
		want         int
	}{
		{"handled", "trap 'exit 9' TERM; echo up; while :; do sleep 0.02; done", []syscall.Signal{syscall.SIGTERM}, 9},
		{"deadly", "echo up; exec sleep 1000", []syscall.Signal{syscall.SIGTERM}, 143},
		{"second ctrl-C", "trap '' INT; echo up; while :; do sleep 0.02; done", []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, 137},
		{"after the grace period", "trap '' TERM; echo up; while :; do sleep 0.02; done", []syscall.Signal{syscall.SIGTERM}, 137},
		{"user signal", "trap 'exit 8' USR1; echo up; while :; do sleep 0.02; done", []syscall.Signal{syscall.SIGUSR1}, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStand(t)
			out := &buffer{}
			done := make(chan int, 1)
			args := append([]string{"--root", s.root, "--socket", s.node.Socket}, s.sh(test.script, "--stop-timeout", "200ms")...)
			go func() { done <- s.app(nil, out, io.Discard).Run(args) }()
			eventually(t, "the container is up", func() bool { return out.String() == "up\n" })
			for i, sig := range test.signals {
				syscall.Kill(os.Getpid(), sig)
				eventually(t, "the signal was forwarded", func() bool {
					return i > 0 || sig != syscall.SIGINT || strings.Contains(strings.Join(s.node.Calls(), ","), "SignalProcess 2")
				})
			}
			if got := <-done; got != test.want {
				t.Errorf("code %d, want %d", got, test.want)
			}
		})
	}
}

func TestSignalWhileBootingRemovesEverything(t *testing.T) {
	s := newStand(t)
	s.node.StartBlocks = true
	done := make(chan int, 1)
	errs := &buffer{}
	args := append([]string{"--root", s.root, "--socket", s.node.Socket}, s.sh("true")...)
	go func() { done <- s.app(nil, io.Discard, errs).Run(args) }()
	eventually(t, "StartVM is under way", func() bool { return strings.Contains(strings.Join(s.node.Calls(), ","), "StartVM") })
	syscall.Kill(os.Getpid(), syscall.SIGINT)
	if got := <-done; got != 130 {
		t.Errorf("code %d, want 130: %s", got, errs.String())
	}
}

// TestSignalWhileADetachedPodBoots: the exit code is the signal's, as without --detach.
func TestSignalWhileADetachedPodBoots(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run(sig.String(), func(t *testing.T) {
			s := newStand(t)
			s.node.StartBlocks = true
			done := make(chan int, 1)
			errs := &buffer{}
			args := append([]string{"--root", s.root, "--socket", s.node.Socket}, s.sh("true", "--detach", "--network", "none")...)
			go func() { done <- s.app(nil, io.Discard, errs).Run(args) }()
			eventually(t, "StartVM is under way", func() bool { return strings.Contains(strings.Join(s.node.Calls(), ","), "StartVM") })
			syscall.Kill(os.Getpid(), sig)
			if got := <-done; got != want {
				t.Errorf("code %d, want %d: %s", got, want, errs.String())
			}
		})
	}
}

// TestDetachedImageByRelativePath: the process that keeps the pod has another
// working directory.
func TestDetachedImageByRelativePath(t *testing.T) {
	s := newStand(t)
	path := strings.TrimPrefix(s.image, "oci:")
	t.Chdir(filepath.Dir(path))
	s.image = "oci:" + filepath.Base(path)
	s.detached("p1", "echo there; exit 3", "--rm=false")
	eventually(t, "its output", func() bool {
		_, stdout, _ := s.run("logs", "p1")
		return stdout == "there\n"
	})
}

// TestListThatCannotBeRead: nobody is shown an empty table of pods that are there.
func TestListThatCannotBeRead(t *testing.T) {
	folder, err := os.MkdirTemp("/tmp", "or")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	if err := os.WriteFile(filepath.Join(folder, "pods.d"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs buffer
	if code := (&App{Stdout: &out, Stderr: &errs}).Run([]string{"--root", folder, "ps"}); code == 0 || !strings.Contains(errs.String(), "list pods: ") {
		t.Errorf("code %d, %q, %q", code, out.String(), errs.String())
	}
}

func TestVMThatDoesNotStart(t *testing.T) {
	s := newStand(t)
	s.node.StartErr = errors.New("no capacity left")
	s.node.ConsoleText = "line1\nKernel panic - not syncing\n"
	code, _, stderr := s.run(s.sh("true")...)
	if code != 125 || !strings.Contains(stderr, "no capacity left") || !strings.Contains(stderr, "Kernel panic") {
		t.Errorf("code %d: %s", code, stderr)
	}
	code, _, stderr = s.run(s.sh("true", "--detach")...)
	if code != 125 || !strings.Contains(stderr, "no capacity left") {
		t.Errorf("detached: code %d: %s", code, stderr)
	}
}

func TestProgressIsToldLineByLine(t *testing.T) {
	s := newStand(t)
	_, _, stderr := s.run("run", s.image)
	for _, want := range []string{"booting a VM (fake)\n", "connected to the VM after ", "started after "} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q misses %q", stderr, want)
		}
	}
}

func TestConsole(t *testing.T) {
	s := newStand(t)
	s.node.ConsoleText = "BIOS\n\x1b]0;title\x07[0.0] \x1b[31mLinux\r\n"
	s.detached("p1", "sleep 1000")
	if code, stdout, stderr := s.run("console", "--tail", "1", "p1"); code != 0 || stdout != "[0.0] Linux\n" {
		t.Errorf("console of one line: %d, %q, %s", code, stdout, stderr)
	}
	if code, stdout, stderr := s.run("console", "p1"); code != 0 || stdout != "BIOS\n[0.0] Linux\n" {
		t.Errorf("code %d, %q, %s", code, stdout, stderr)
	}
	s.node.ConsoleText = "BIOS\nlogin: "
	if code, stdout, stderr := s.run("console", "--tail", "1", "p1"); code != 0 || stdout != "login: " {
		t.Errorf("console of a line without an end: %d, %q, %s", code, stdout, stderr)
	}
	if got := string(newSince([]byte("a\nb\n"), []byte("a\nb\nc\n"))); got != "c\n" {
		t.Errorf("new part %q", got)
	}
}

func TestBadInput(t *testing.T) {
	s := newStand(t)
	envFile := filepath.Join(t.TempDir(), "env")
	os.WriteFile(envFile, []byte("# fine\nA=1\n=bad\n"), 0o600)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"run"}, "needs an IMAGE"},
		{[]string{"run", "--memory", "512", s.image}, `--memory "512": want a number above 0`},
		{[]string{"run", "--memory", "-5MiB", s.image}, "--memory"},
		{[]string{"run", "--memory", "1KiB", s.image}, "at least 1MiB"},
		{[]string{"run", "-m", "512KiB", s.image}, `--memory "512KiB": want at least 1MiB`},
		{[]string{"run", "--cpus", "many", s.image}, `--cpus "many": want a number`},
		{[]string{"run", "--cpus", "0", s.image}, "--cpus"},
		{[]string{"run", "--env", "=x", s.image}, "--env"},
		{[]string{"run", "--env-file", envFile, s.image}, "line 3"},
		{[]string{"run", "--env-file", "/nonexistent", s.image}, "--env-file"},
		{[]string{"run", "--mount", "type=bind,source=/nonexistent,target=/x", s.image}, "no such file"},
		{[]string{"run", "--mount", "type=nfs,target=/x", s.image}, `unknown type "nfs"`},
		{[]string{"run", "--mount", "type=tmpfs,target=x", s.image}, "absolute path"},
		{[]string{"run", "--mount", "tyype=tmpfs", s.image}, `unknown key "tyype"`},
		{[]string{"run", "--annotation", "novalue", s.image}, "KEY=VALUE"},
		{[]string{"run", "--dns", "example.com", s.image}, "--dns"},
		{[]string{"run", "--network", "host", s.image}, "--network"},
		{[]string{"run", "--name", "Bad_Name", s.image}, "--name"},
		{[]string{"run", "--platform", "windows/amd64", s.image}, "want linux/ARCH"},
		{[]string{"run", "--platform", "linux/s390x", s.image}, "s390x"},
		{[]string{"run", "--user", "ghost", s.image}, "ghost"},
		{[]string{"run", "--workdir", "rel", s.image}, "--workdir"},
		{[]string{"run", "-d", "-i", s.image}, "--detach"},
		{[]string{"run", "-it", s.image}, "needs a terminal"},
		{[]string{"run", "--pull-timeout", "0s", s.image}, "--pull-timeout"},
		{[]string{"--socket", "", "run", "--cpus", "1000", s.image}, "a VM with 1000 CPUs: this host has "},
		{[]string{"--socket", "", "run", "--memory", "900TiB", s.image}, "give less with --memory"},
		{[]string{"run", "--no-template", "--provider", "libvirt", s.image}, "--no-template: only VMs of provider qemu"},
		{[]string{"--socket", "/nonexistent", "run", "--adaptor-arg", "-v", s.image}, "--adaptor-arg: the adaptor at /nonexistent"},
		{[]string{"--socket", "/nonexistent", "run", "--no-template", s.image}, "--no-template and"},
		{[]string{"run", "--no-such-flag", s.image}, "--no-such-flag"},
		{[]string{"run", "oci:/nonexistent"}, "no such file"},
		{[]string{"run", "UPPER CASE"}, "invalid image reference"},
		{[]string{"--socket", "/nonexistent", "run", s.image}, "nobody serves"},
		{[]string{"--socket", "/nonexistent", "ps"}, "nobody serves"},
		{[]string{"--root", "/tmp/" + strings.Repeat("x", 100), "run", s.image}, "too long"},
		{[]string{"exec", "nobody", "true"}, "no such pod"},
		{[]string{"exec", "nobody"}, "exec needs"},
		{[]string{"logs", "--tail", "x", "p"}, "--tail"},
		{[]string{"ps", "-o", "yaml"}, "--output"},
		{[]string{"rm"}, "names of pods"},
		{[]string{"rm", "nobody"}, "no such pod"},
		{[]string{"nonsense"}, "unknown command"},
	} {
		code, stdout, stderr := s.run(test.args...)
		if code != 125 || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: code %d, want 125 and %q\n%s%s", test.args, code, test.want, stdout, stderr)
		}
	}
	if _, err := os.Stat(s.root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("bad input left the root folder behind: %v", err)
	}
}

// The adaptor is killed during StartVM: what the client undoes at once fails,
// and the VM must go nevertheless. The stand looks whether anything is left.
func TestFailedStartLeavesNothing(t *testing.T) {
	s := newStand(t)
	s.node.StartErr, s.node.StopErr = errors.New("killed"), errors.New("not there")
	if code, _, stderr := s.run(s.sh("true")...); code != 125 || !strings.Contains(stderr, "killed") {
		t.Errorf("code %d: %s", code, stderr)
	}
}

func TestNameThatIsTaken(t *testing.T) {
	s := newStand(t)
	s.detached("p1", "sleep 1000")
	if code, _, stderr := s.run(s.sh("true", "--name", "p1")...); code != 125 || !strings.Contains(stderr, "outrigger rm p1") {
		t.Errorf("code %d: %s", code, stderr)
	}
}

func TestCompletion(t *testing.T) {
	s := newStand(t)
	s.detached("web", "sleep 1000")
	if _, stdout, _ := s.run("__complete", "exec", ""); !strings.Contains(stdout, "web") {
		t.Errorf("exec completes to %q", stdout)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, stdout, _ := s.run("completion", shell); code != 0 || len(stdout) < 1000 {
			t.Errorf("completion %s: code %d, %d bytes", shell, code, len(stdout))
		}
	}
}

// TestErrorsHaveNoWordsOfProtocols guards what a user reads.
func TestErrorsHaveNoWordsOfProtocols(t *testing.T) {
	refused := status.Error(codes.InvalidArgument, "start sandbox x: no such image")
	late := status.FromContextError(context.DeadlineExceeded).Err()
	for want, err := range map[string]error{
		"VM: no such vm":                     fmt.Errorf("VM: start sandbox %s: no such vm", strings.Repeat("a1", 16)),
		"VM: start sandbox x: no such image": fmt.Errorf("VM: %w", refused),
		"the time for it was over":           late,
		"pull: start sandbox x: no such image\nand the time for it was over":     fmt.Errorf("pull: %w\nand %w", refused, late),
		"VM: the VM was not ready within the 5s; the VM's console ends with:\n0": status.Error(codes.DeadlineExceeded, "VM: the VM was not ready within the 5s; the VM's console ends with:\n0"),
	} {
		if got := explain(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPodTable(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	seven := 7
	pods := []listedPod{
		{Name: "web", ID: strings.Repeat("a1", 32), Image: "docker.io/library/nginx", Status: "running", Created: now.Add(-90 * time.Second), IPs: []string{"10.127.0.2"}, Provider: "qemu", Instance: "podvm-web", VM: []string{"10.126.0.2"}, Command: []string{"nginx", "-g"}},
		{Name: "job", ID: strings.Repeat("b2", 32), Image: "oci:x", Status: "exited", ExitCode: &seven, Created: now.Add(-3 * time.Hour)},
	}
	var out buffer
	a := &App{Stdout: &out}
	if err := a.printPods(pods, true, now); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"NAME   ID             IMAGE                     STATUS       AGE   IP           PROVIDER   INSTANCE    VM           COMMAND\n" +
		"web    a1a1a1a1a1a1   docker.io/library/nginx   running      90s   10.127.0.2   qemu       podvm-web   10.126.0.2   nginx -g\n" +
		"job    b2b2b2b2b2b2   oci:x                     exited (7)   3h    -            -          -           -            -\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"512MiB": 512 << 20, "1g": 1 << 30, "1.5GiB": 3 << 29, "64Mi": 64 << 20, "2 KiB": 2048, "100b": 100} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "MiB", "0MiB", "-1g", "1xb", "1e3g5", "99999999999999TiB", "nan g", "1..5g"} {
		if n, err := parseSize(text); err == nil {
			t.Errorf("%q was read as %d", text, n)
		}
	}
}

func FuzzParseMount(f *testing.F) {
	f.Add("type=bind,source=/,target=/x,readonly")
	f.Add("type=tmpfs,target=/x,size=1MiB")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMount(text)
		if err == nil && (m.Type == "" || m.Destination == "" || m.Destination[0] != '/') {
			t.Errorf("%q gives %+v", text, m)
		}
	})
}
