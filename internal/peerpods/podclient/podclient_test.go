// SPDX-License-Identifier: Apache-2.0

package podclient_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/test/fakeagent"
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func startNode(t *testing.T) *fakeagent.Node {
	t.Helper()
	n, err := fakeagent.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func startPod(t *testing.T, n *fakeagent.Node, spec podclient.PodSpec) *podclient.Pod {
	t.Helper()
	spec.Name = "p1"
	p, err := podclient.New(n.Socket).Create(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(context.Background()) })
	return p
}

func startContainer(t *testing.T, p *podclient.Pod, spec podclient.ContainerSpec, streams podclient.IO) *podclient.Container {
	t.Helper()
	spec.Image = "localhost/busybox:1"
	spec.Env = append(spec.Env, "PATH=/bin:/usr/bin")
	c, err := p.CreateContainer(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(testContext(t)); err != nil {
		t.Fatal(err)
	}
	c.Stream(streams)
	return c
}

func wait(t *testing.T, p interface {
	Wait(context.Context) (int, error)
}) int {
	t.Helper()
	status, err := p.Wait(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func sh(script string) podclient.ContainerSpec {
	return podclient.ContainerSpec{Args: []string{"sh", "-c", script}}
}

// The calls of a pod with one container, in the order of the Go shim.
func TestOrderOfCalls(t *testing.T) {
	n := startNode(t)
	p := startPod(t, n, podclient.PodSpec{Pause: true, HealthInterval: -1})
	c := startContainer(t, p, sh("exit 3"), podclient.IO{})
	if got := wait(t, c); got != 3 {
		t.Errorf("status %d, want 3", got)
	}
	if err := c.Remove(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"CreateVM", "StartVM", "Check", "CreateSandbox", "GetGuestDetails",
		"CopyFile", "CreateContainer", "StartContainer", // pause
		"CopyFile", "CopyFile", "CopyFile", "CreateContainer", "StartContainer", "WaitProcess",
		"SignalProcess 9", "WaitProcess", "RemoveContainer", "RemoveStaleVirtiofsShareMounts",
		"SignalProcess 9", "SignalProcess 9", "WaitProcess", "RemoveContainer", "RemoveStaleVirtiofsShareMounts",
		"DestroySandbox", "StopVM",
	}
	if diff := cmp.Diff(want, n.Calls()); diff != "" {
		t.Error(diff)
	}
	if n.VMs() != 0 {
		t.Error("a VM is left")
	}
}

func TestStdoutIsByteExact(t *testing.T) {
	const size = 128 << 20
	p := startPod(t, startNode(t), podclient.PodSpec{})
	got := sha256.New()
	c := startContainer(t, p, sh("yes 0123456789abcdef | head -c 134217728; printf tail >&2"), podclient.IO{Stdout: got})
	if s := wait(t, c); s != 0 {
		t.Fatalf("status %d", s)
	}
	want := sha256.New()
	text := bytes.Repeat([]byte("0123456789abcdef\n"), 1<<20)
	for left := size; left > 0; left -= min(left, len(text)) {
		want.Write(text[:min(left, len(text))])
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Error("stdout differs from what was written")
	}
}

func TestStdinReachesTheProcessAndEnds(t *testing.T) {
	n := startNode(t)
	n.ShortWrites = 1000
	p := startPod(t, n, podclient.PodSpec{})
	in := bytes.Repeat([]byte("line of input\n"), 100_000)
	var out bytes.Buffer
	c := startContainer(t, p, sh("cat; exit 4"), podclient.IO{Stdin: bytes.NewReader(in), Stdout: &out})
	if s := wait(t, c); s != 4 {
		t.Errorf("status %d, want 4", s)
	}
	if !bytes.Equal(out.Bytes(), in) {
		t.Errorf("%d bytes came back of %d", out.Len(), len(in))
	}
}

func TestExitStatus(t *testing.T) {
	p := startPod(t, startNode(t), podclient.PodSpec{})
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -9 $$": 137, "kill -USR2 $$": 140} {
		if got := wait(t, startContainer(t, p, sh(script), podclient.IO{})); got != want {
			t.Errorf("%s: status %d, want %d", script, got, want)
		}
	}
}

func TestStopKillsAfterTheGracePeriod(t *testing.T) {
	p := startPod(t, startNode(t), podclient.PodSpec{})
	out := newWaitFor("ready")
	c := startContainer(t, p, sh("trap '' TERM; echo ready; while :; do sleep 0.1; done"), podclient.IO{Stdout: out})
	out.wait(t)
	status, err := c.Stop(testContext(t), 100*time.Millisecond)
	if err != nil || status != 137 {
		t.Errorf("status %d, error %v; want 137", status, err)
	}
}

// waitFor is a writer that tells when it has seen a text.
type waitFor struct {
	text string
	all  bytes.Buffer
	seen chan struct{}
}

func newWaitFor(text string) *waitFor { return &waitFor{text: text, seen: make(chan struct{})} }

func (w *waitFor) Write(b []byte) (int, error) {
	before := strings.Contains(w.all.String(), w.text)
	w.all.Write(b)
	if !before && strings.Contains(w.all.String(), w.text) {
		close(w.seen)
	}
	return len(b), nil
}

func (w *waitFor) wait(t *testing.T) {
	t.Helper()
	select {
	case <-w.seen:
	case <-time.After(time.Minute):
		t.Fatalf("%q was not written", w.text)
	}
}

func TestTerminal(t *testing.T) {
	n := startNode(t)
	p := startPod(t, n, podclient.PodSpec{})
	out := newWaitFor("ready")
	in, stdin := io.Pipe()
	spec := sh("stty size; echo ready; read x; stty size; exit 9")
	spec.TTY, spec.Rows, spec.Columns = true, 20, 70
	c := startContainer(t, p, spec, podclient.IO{Stdin: in, Stdout: out})
	out.wait(t)
	if err := c.Resize(testContext(t), 33, 111); err != nil {
		t.Fatal(err)
	}
	io.WriteString(stdin, "go\n")
	if s := wait(t, c); s != 9 {
		t.Errorf("status %d, want 9", s)
	}
	for _, want := range []string{"20 70\r\n", "33 111\r\n"} {
		if !strings.Contains(out.all.String(), want) {
			t.Errorf("%q misses %q", out.all.String(), want)
		}
	}
}

func TestExec(t *testing.T) {
	n := startNode(t)
	p := startPod(t, n, podclient.PodSpec{})
	c := startContainer(t, p, sh("sleep 1000"), podclient.IO{})
	var out, errs bytes.Buffer
	proc, err := c.Exec(testContext(t), podclient.ExecSpec{
		Args: []string{"sh", "-c", "cat; echo $FOO >&2; exit 5"}, Env: []string{"PATH=/bin", "FOO=bar"},
	})
	if err != nil {
		t.Fatal(err)
	}
	proc.Stream(podclient.IO{Stdin: strings.NewReader("piped"), Stdout: &out, Stderr: &errs})
	if s := wait(t, proc); s != 5 || out.String() != "piped" || errs.String() != "bar\n" {
		t.Errorf("status %d, stdout %q, stderr %q", s, out.String(), errs.String())
	}
	if err := c.Signal(testContext(t), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if s := wait(t, c); s != 143 {
		t.Errorf("status %d, want 143", s)
	}
}

func TestOutputThatFailsIsDrained(t *testing.T) {
	p := startPod(t, startNode(t), podclient.PodSpec{})
	c := startContainer(t, p, sh("yes | head -c 10000000; exit 6"), podclient.IO{Stdout: failing{}})
	select {
	case <-c.OutputFailed():
	case <-time.After(time.Minute):
		t.Fatal("nobody was told")
	}
	if s := wait(t, c); s != 6 || !errors.Is(c.OutputErr(), syscall.EPIPE) {
		t.Errorf("status %d, error %v", s, c.OutputErr())
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestLostAgent(t *testing.T) {
	for name, lose := range map[string]func(*fakeagent.Agent){
		"connection": (*fakeagent.Agent).Drop, "health": (*fakeagent.Agent).Sicken,
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t)
			p := startPod(t, n, podclient.PodSpec{HealthInterval: 10 * time.Millisecond})
			c := startContainer(t, p, sh("sleep 1000"), podclient.IO{})
			lose(n.Agent(p.ID()))
			if _, err := c.Wait(testContext(t)); !errors.Is(err, podclient.ErrAgentLost) {
				t.Errorf("Wait: %v, want %v", err, podclient.ErrAgentLost)
			}
			<-p.Dead()
			if err := p.Stop(testContext(t)); err != nil || n.VMs() != 0 {
				t.Errorf("Stop: %v, %d VMs left", err, n.VMs())
			}
		})
	}
}

func TestFailedStart(t *testing.T) {
	for name, test := range map[string]struct {
		break_ func(*fakeagent.Node)
		want   []string
	}{
		"CreateVM": {func(n *fakeagent.Node) { n.CreateErr = errors.New("no room") }, []string{"CreateVM"}},
		"StartVM":  {func(n *fakeagent.Node) { n.StartErr = errors.New("no room") }, []string{"CreateVM", "StartVM", "StopVM"}},
		"deadline": {func(n *fakeagent.Node) { n.StartBlocks = true }, []string{"CreateVM", "StartVM", "StopVM"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t)
			n.ConsoleText = "Kernel panic"
			test.break_(n)
			_, err := podclient.New(n.Socket).Create(testContext(t), podclient.PodSpec{Name: "p", StartTimeout: 50 * time.Millisecond})
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(test.want, n.Calls()); diff != "" {
				t.Error(diff)
			}
			var start *podclient.StartError
			if name != "CreateVM" && (!errors.As(err, &start) || string(start.Console) != "Kernel panic") {
				t.Errorf("error %v lacks the console", err)
			}
			if n.VMs() != 0 {
				t.Error("a VM is left")
			}
		})
	}
}

func TestMountsAreCopied(t *testing.T) {
	for name, older := range map[string]bool{"in few calls": false, "by an older agent": true} {
		t.Run(name, func(t *testing.T) { mountsAreCopied(t, older) })
	}
}

func mountsAreCopied(t *testing.T, older bool) {
	dir := t.TempDir()
	big := bytes.Repeat([]byte("x"), 5<<20)
	for name, data := range map[string][]byte{"..data1/key": []byte("value"), "big": big, "empty": nil} {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	os.Symlink("..data1/key", filepath.Join(dir, "key"))
	n := startNode(t)
	n.OlderAgent = older
	p := startPod(t, n, podclient.PodSpec{DNS: []string{"nameserver 192.0.2.53"}})
	spec := sh("true")
	spec.Mounts = []podclient.Mount{
		{Type: podclient.MountBind, Source: dir, Destination: "/cfg", ReadOnly: true},
		{Type: podclient.MountVolume, Source: "ed", Destination: "/ed"},
		{Type: podclient.MountTmpfs, Destination: "/mem", SizeBytes: 1 << 20},
	}
	c := startContainer(t, p, spec, podclient.IO{})
	req := n.Agent(p.ID()).Created()[c.ID()]
	mount := map[string]string{}
	for _, m := range req.OCI.Mounts {
		mount[m.Destination] = m.Source
	}
	files := n.Agent(p.ID()).Files()
	base := mount["/cfg"]
	for name, want := range map[string]struct {
		mode  uint32
		data  string
		calls int
	}{
		"":             {syscall.S_IFDIR | 0o755, "", 1},
		"/..data1":     {syscall.S_IFDIR | 0o755, "", 1},
		"/..data1/key": {syscall.S_IFREG | 0o640, "value", 1},
		"/key":         {syscall.S_IFLNK | 0o777, "..data1/key", 1},
		"/empty":       {syscall.S_IFREG | 0o640, "", 1},
		"/big":         {syscall.S_IFREG | 0o640, string(big), 5},
	} {
		f := files[base+name]
		if f == nil {
			t.Errorf("%q was not copied", name)
		} else if name != "" && f.Mode != want.mode || string(f.Data) != want.data || f.Calls != want.calls {
			t.Errorf("%q: mode %o, %d bytes, %d calls", name, f.Mode, len(f.Data), f.Calls)
		}
	}
	batches := slices.DeleteFunc(n.Calls(), func(call string) bool { return call != "CopyFiles" })
	if want := map[bool]int{false: 3, true: 1}[older]; len(batches) != want { // 5 MiB and some files, of 2 MiB each; one that is refused
		t.Errorf("%d calls of CopyFiles, want %d", len(batches), want)
	}
	if got := string(files[mount["/etc/resolv.conf"]].Data); got != "nameserver 192.0.2.53\n" {
		t.Errorf("resolv.conf %q", got)
	}
	if got := req.Storages[1].MountPoint; got != mount["/ed"] {
		t.Errorf("emptyDir is mounted from %q, made at %q", mount["/ed"], got)
	}
	wait(t, c)
}

// A guest that has been taken over says whatever it likes, as long as it likes.
func TestWhatTheGuestSaysIsBounded(t *testing.T) {
	n := startNode(t)
	n.ExecErr = status.Error(codes.InvalidArgument, "no\nsuch\x1b[2J "+strings.Repeat("command ", 200000))
	n.StatsInterfaces = 200000
	p := startPod(t, n, podclient.PodSpec{})
	c := startContainer(t, p, sh("sleep 1000"), podclient.IO{})

	_, err := c.Exec(testContext(t), podclient.ExecSpec{Args: []string{"true"}})
	if err == nil || len(err.Error()) > 4096 || strings.ContainsAny(err.Error(), "\n\x1b") || !strings.Contains(err.Error(), "no such") || status.Code(err) != codes.InvalidArgument {
		t.Errorf("the error of exec has %d bytes: %.100q", len(err.Error()), err)
	}
	if _, err := c.Stats(testContext(t)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "StatsContainer") {
		t.Errorf("statistics of 200,000 interfaces: %v", err)
	}
	const words = "/run/kata-containers/shared/containers/words"
	if err := p.CopyData(testContext(t), words, 0o600, bytes.Repeat([]byte("x"), 100000)); err != nil {
		t.Fatal(err)
	}
	if data, known, err := p.ReadCopied(testContext(t), words); len(data) != 4096 || !known || err != nil {
		t.Errorf("a termination message of %d bytes, %v, %v", len(data), known, err)
	}
	if err := p.Err(); err != nil {
		t.Errorf("the pod is given up: %v", err)
	}
}

func TestOOM(t *testing.T) {
	n := startNode(t)
	p := startPod(t, n, podclient.PodSpec{})
	c := startContainer(t, p, sh("sleep 1000"), podclient.IO{})
	n.Agent(p.ID()).OOM(c.ID())
	for deadline := time.Now().Add(time.Minute); !c.OOMKilled(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the event did not arrive")
		}
	}
}

// The fake agent lists no storage drivers: one of an older image, and Kata's, have no NFS.
func TestNetworkFileSystemOfAnOlderImage(t *testing.T) {
	p := startPod(t, startNode(t), podclient.PodSpec{})
	_, _, err := p.PlaceMount(testContext(t), "c", podclient.Mount{
		Type: podclient.MountNetwork, Destination: "/x", Storage: &agent.Storage{Driver: "nfs", Source: "nas.example:/x", MountPoint: podclient.GuestNetwork + "/x"},
	})
	if err == nil || !strings.Contains(err.Error(), "nas.example:/x: the agent of this VM image mounts no network file systems (nfs): use an image of this version") {
		t.Error(err)
	}
}
