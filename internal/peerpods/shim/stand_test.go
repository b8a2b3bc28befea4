// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/ttrpc"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/outrigger/outrigger/test/fakeagent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// containerdEvents plays containerd's event service.
type containerdEvents struct {
	mu     sync.Mutex
	topics []string
	exits  map[string]*events.TaskExit
	came   chan struct{}
}

func (c *containerdEvents) Forward(_ context.Context, req *eventsapi.ForwardRequest) (*emptypb.Empty, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := req.Envelope
	c.topics = append(c.topics, e.Topic)
	if e.Topic == "/tasks/exit" {
		exit := &events.TaskExit{}
		if err := proto.Unmarshal(e.Event.Value, exit); err != nil {
			return nil, err
		}
		c.exits[exit.ID] = exit
	}
	close(c.came)
	c.came = make(chan struct{})
	return &emptypb.Empty{}, nil
}

// wait blocks until check holds.
func (c *containerdEvents) wait(t *testing.T, what string, check func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		c.mu.Lock()
		ok, came := check(), c.came
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-came:
		case <-deadline:
			t.Fatalf("no event: %s", what)
		}
	}
}

func serveEvents(t *testing.T, socket string) *containerdEvents {
	t.Helper()
	c := &containerdEvents{exits: map[string]*events.TaskExit{}, came: make(chan struct{})}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	eventsapi.RegisterTTRPCEventsService(server, c)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(context.Background(), l)
	t.Cleanup(func() { server.Close() })
	return c
}

// rig is a shim's service between a fake node and a fake containerd.
type rig struct {
	*Service
	t       *testing.T
	dir     string
	node    *fakeagent.Node
	events  *containerdEvents
	options *anypb.Any
	exited  chan struct{}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	node, err := fakeagent.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	r := &rig{t: t, dir: shortDir(t), node: node, exited: make(chan struct{})}
	r.events = serveEvents(t, r.dir+"/e")
	r.configure("")
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	publisher := NewPublisher(r.dir+"/e", "k8s.io", log)
	r.Service = New(Options{Log: log, Events: publisher, Getenv: func(string) string { return "" }, Exit: func() { close(r.exited) }})
	t.Cleanup(func() { r.end(publisher) })
	return r
}

// end stops what a test left running.
func (r *rig) end(publisher *Publisher) {
	for _, c := range r.containers() {
		if c.ownsVM() {
			r.endVM(c.vm)
		}
	}
	for _, c := range r.containers() {
		c.volumes.Close()
		for _, p := range c.processes() {
			if p.run != nil {
				<-p.exited
			}
			p.forget()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	publisher.Close(ctx)
}

// shortDir has a path that leaves room for sockets in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "shim")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// configure writes the shim's configuration file and names it in the options.
func (r *rig) configure(more string) {
	r.t.Helper()
	path := r.dir + "/shim.toml"
	text := "[hypervisor.remote]\nremote_hypervisor_socket = \"" + r.node.Socket + "\"\n" + more
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
	options, err := bare(&runtimeoptions.Options{TypeUrl: "x", ConfigPath: path})
	if err != nil {
		r.t.Fatal(err)
	}
	r.options = options
}

// sandboxAnnotations are those that containerd gives to containers of a pod.
func sandboxAnnotations(kind string) map[string]string {
	return map[string]string{
		"io.kubernetes.cri.container-type":    kind,
		"io.kubernetes.cri.sandbox-id":        "sb",
		"io.kubernetes.cri.sandbox-name":      "p1",
		"io.kubernetes.cri.sandbox-namespace": "ns1",
		"io.kubernetes.cri.sandbox-uid":       "u1",
		"io.kubernetes.cri.image-name":        "localhost/busybox:1",
	}
}

func podSpecOf(kind string, args ...string) *oci.Spec {
	return &oci.Spec{
		Version: "1.0.2-dev", Hostname: "p1host", Annotations: sandboxAnnotations(kind),
		Process: &oci.Process{Args: args, Env: []string{"PATH=/bin:/usr/bin"}, Cwd: "/"},
		Linux:   &oci.Linux{Namespaces: []oci.LinuxNamespace{{Type: oci.NetworkNamespace, Path: "/var/run/netns/x"}, {Type: oci.PIDNamespace}, {Type: oci.IPCNamespace}}},
	}
}

// bundleOf writes a container's bundle.
func (r *rig) bundleOf(id string, spec *oci.Spec) string {
	r.t.Helper()
	dir := filepath.Join(r.dir, id)
	data, err := json.Marshal(spec)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644); err != nil {
		r.t.Fatal(err)
	}
	return dir
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) create(req *taskapi.CreateTaskRequest, spec *oci.Spec) error {
	r.t.Helper()
	req.Bundle, req.Options = r.bundleOf(req.ID, spec), r.options
	_, err := r.Create(r.ctx(), req)
	return err
}

// sandbox makes and starts a pod's pause container.
func (r *rig) sandbox() {
	r.t.Helper()
	if err := r.create(&taskapi.CreateTaskRequest{ID: "sb"}, podSpecOf("sandbox", "sleep", "infinity")); err != nil {
		r.t.Fatal(err)
	}
	r.start("sb", "")
}

func (r *rig) start(id, exec string) {
	r.t.Helper()
	if _, err := r.Start(r.ctx(), &taskapi.StartRequest{ID: id, ExecID: exec}); err != nil {
		r.t.Fatal(err)
	}
}

// app makes and starts a container with FIFOs for its streams.
func (r *rig) app(id string, args ...string) *fifos {
	r.t.Helper()
	f := r.fifos(id)
	req := &taskapi.CreateTaskRequest{ID: id, Stdin: f.stdin, Stdout: f.stdout, Stderr: f.stderr}
	if err := r.create(req, podSpecOf("container", args...)); err != nil {
		r.t.Fatal(err)
	}
	r.start(id, "")
	return f
}

func (r *rig) waitExit(id, exec string) uint32 {
	r.t.Helper()
	resp, err := r.Wait(r.ctx(), &taskapi.WaitRequest{ID: id, ExecID: exec})
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.ExitStatus
}

// fifos are containerd's side of a process's streams.
type fifos struct {
	t                     *testing.T
	stdin, stdout, stderr string
}

func (r *rig) fifos(name string) *fifos {
	r.t.Helper()
	f := &fifos{r.t, r.dir + "/" + name + "-in", r.dir + "/" + name + "-out", r.dir + "/" + name + "-err"}
	for _, path := range []string{f.stdin, f.stdout, f.stderr} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	return f
}

// read returns all of a stream; its writer must be there already.
func (f *fifos) read(path string) string {
	f.t.Helper()
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	file.SetReadDeadline(time.Now().Add(time.Minute))
	data, err := io.ReadAll(file)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(data)
}

func (f *fifos) write(text string) {
	f.t.Helper()
	file, err := os.OpenFile(f.stdin, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.WriteString(file, text); err != nil {
		f.t.Fatal(err)
	}
}
