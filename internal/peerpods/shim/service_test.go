// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1/stats"
	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/task"
	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// The calls of a pod's life, in the order of the Go shim.
func TestLifeOfAPod(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	f := r.app("app", "sh", "-c", "echo out; echo err >&2; exit 7")
	if out := f.read(f.stdout); out != "out\n" {
		t.Errorf("stdout %q", out)
	}
	if out := f.read(f.stderr); out != "err\n" {
		t.Errorf("stderr %q", out)
	}
	if code := r.waitExit("app", ""); code != 7 {
		t.Errorf("exit status %d, want 7", code)
	}
	resp, err := r.Delete(r.ctx(), &taskapi.DeleteRequest{ID: "app"})
	if err != nil || resp.ExitStatus != 7 || resp.ExitedAt == nil {
		t.Errorf("Delete answered %v, %v", resp, err)
	}
	if _, err := r.Shutdown(r.ctx(), &taskapi.ShutdownRequest{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.exited:
		t.Fatal("Shutdown ended a shim that has a container")
	default:
	}
	if _, err := r.Kill(r.ctx(), &taskapi.KillRequest{ID: "sb", Signal: 9, All: true}); err != nil {
		t.Fatal(err)
	}
	if code := r.waitExit("sb", ""); code != 137 {
		t.Errorf("exit status %d of pause, want 137", code)
	}
	if r.node.VMs() != 0 {
		t.Error("the VM is there after the exit of pause")
	}
	if _, err := r.Delete(r.ctx(), &taskapi.DeleteRequest{ID: "sb"}); err != nil {
		t.Fatal(err)
	}
	r.Shutdown(r.ctx(), &taskapi.ShutdownRequest{})
	<-r.exited

	want := []string{
		"CreateVM", "StartVM", "Check", "CreateSandbox", "GetGuestDetails", "CreateContainer", "StartContainer",
		"CreateContainer", "StartContainer", "WaitProcess",
		"SignalProcess 9", "WaitProcess", "RemoveContainer", "RemoveStaleVirtiofsShareMounts",
		"SignalProcess 9", "WaitProcess", "SignalProcess 9", "WaitProcess", "RemoveContainer", "RemoveStaleVirtiofsShareMounts",
		"DestroySandbox", "StopVM",
	}
	if diff := cmp.Diff(want, r.node.Calls()); diff != "" {
		t.Error(diff)
	}
	topics := []string{
		"/tasks/create", "/tasks/start", "/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete", "/tasks/exit", "/tasks/delete",
	}
	r.events.wait(t, "the last", func() bool { return len(r.events.topics) >= len(topics) })
	if diff := cmp.Diff(topics, r.events.topics); diff != "" {
		t.Error(diff)
	}
}

func (r *rig) exec(id string, f *fifos, args ...string) {
	r.t.Helper()
	spec, err := json.Marshal(oci.Process{Args: args, Env: []string{"PATH=/bin:/usr/bin"}, Cwd: "/"})
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = r.Exec(r.ctx(), &taskapi.ExecProcessRequest{
		ID: "app", ExecID: id, Stdin: f.stdin, Stdout: f.stdout, Stderr: f.stderr, Spec: &anypb.Any{Value: spec},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.start("app", id)
}

// Output that comes after the end of input is not lost, and CloseIO does not
// wait for the client to close its end.
func TestExecWithInput(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	r.app("app", "sleep", "infinity")
	f := r.fifos("e1")
	r.exec("e1", f, "sh", "-c", "cat; echo after")
	writer, err := os.OpenFile(f.stdin, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	writer.WriteString("in\n")
	if _, err := r.CloseIO(r.ctx(), &taskapi.CloseIORequest{ID: "app", ExecID: "e1", Stdin: true}); err != nil {
		t.Fatal(err)
	}
	writer.WriteString("more\n")
	writer.Close()
	if out := f.read(f.stdout); out != "in\nmore\nafter\n" {
		t.Errorf("stdout %q", out)
	}
	if code := r.waitExit("app", "e1"); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if _, err := r.Delete(r.ctx(), &taskapi.DeleteRequest{ID: "app", ExecID: "e1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.State(r.ctx(), &taskapi.StateRequest{ID: "app", ExecID: "e1"}); status.Code(err) != codes.NotFound {
		t.Errorf("State of a deleted exec: %v", err)
	}
}

// A client's FIFO is open, and its input may have ended, before Start is done.
func TestCloseIOBeforeTheStart(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	f := r.fifos("app")
	req := &taskapi.CreateTaskRequest{ID: "app", Stdin: f.stdin, Stdout: f.stdout, Stderr: f.stderr}
	if err := r.create(req, podSpecOf("container", "cat")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.CloseIO(r.ctx(), &taskapi.CloseIORequest{ID: "app", Stdin: true}); err != nil {
		t.Fatal(err)
	}
	r.start("app", "")
	if code := r.waitExit("app", ""); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// A client that goes away, as containerd does in a restart, is not an end of
// input.
func TestInputSurvivesItsWriter(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	f := r.app("app", "cat")
	f.write("one\n")
	f.write("two\n")
	r.CloseIO(r.ctx(), &taskapi.CloseIORequest{ID: "app", Stdin: true})
	if out := f.read(f.stdout); out != "one\ntwo\n" {
		t.Errorf("stdout %q", out)
	}
	if code := r.waitExit("app", ""); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// What a container wrote before its end is there for a reader that comes later.
func TestOutputWaitsForItsReader(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	f := r.app("app", "sh", "-c", "echo last words")
	r.waitExit("app", "")
	if out := f.read(f.stdout); out != "last words\n" {
		t.Errorf("stdout %q", out)
	}
}

func TestEndOfFileWithoutInput(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	f := r.fifos("app")
	req := &taskapi.CreateTaskRequest{ID: "app", Stdout: f.stdout, Stderr: f.stderr}
	if err := r.create(req, podSpecOf("container", "cat")); err != nil {
		t.Fatal(err)
	}
	r.start("app", "")
	if code := r.waitExit("app", ""); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

func TestKillBeforeTheStart(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	if err := r.create(&taskapi.CreateTaskRequest{ID: "app"}, podSpecOf("container", "true")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Kill(r.ctx(), &taskapi.KillRequest{ID: "app", Signal: 9}); err != nil {
		t.Fatal(err)
	}
	if code := r.waitExit("app", ""); code != 137 {
		t.Errorf("exit status %d", code)
	}
	if _, err := r.Kill(r.ctx(), &taskapi.KillRequest{ID: "app", Signal: 9}); status.Code(err) != codes.NotFound {
		t.Errorf("Kill of an ended container: %v, want NotFound", err)
	}
	if _, err := r.Delete(r.ctx(), &taskapi.DeleteRequest{ID: "app"}); err != nil {
		t.Error(err)
	}
}

func TestDeleteOfARunningContainerIsRefused(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	_, err := r.Delete(r.ctx(), &taskapi.DeleteRequest{ID: "sb"})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("error %v", err)
	}
}

func TestLostAgentEndsAllContainers(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	r.app("app", "sleep", "infinity")
	r.node.Agent("sb").Drop()
	for _, id := range []string{"app", "sb"} {
		if code := r.waitExit(id, ""); code != lostStatus {
			t.Errorf("%s: exit status %d, want %d", id, code, lostStatus)
		}
	}
	if r.node.VMs() != 0 {
		t.Error("StopVM was not called")
	}
}

func TestOOM(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	r.app("app", "sleep", "infinity")
	r.node.Agent("sb").OOM("app")
	r.events.wait(t, "/tasks/oom", func() bool { return slices.Contains(r.events.topics, "/tasks/oom") })
}

func TestStats(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	resp, err := r.Stats(r.ctx(), &taskapi.StatsRequest{ID: "sb"})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Stats.TypeUrl != "io.containerd.cgroups.v1.Metrics" {
		t.Errorf("type %s", resp.Stats.TypeUrl)
	}
	var m stats.Metrics
	if err := proto.Unmarshal(resp.Stats.Value, &m); err != nil || m.Memory.Usage.Limit == 0 {
		t.Errorf("metrics %v, %v", &m, err)
	}
}

func TestStateAndConnect(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	resp, err := r.State(r.ctx(), &taskapi.StateRequest{ID: "sb"})
	if err != nil || resp.Status != task.Status_RUNNING || resp.Pid != uint32(os.Getpid()) {
		t.Errorf("State answered %v, %v", resp, err)
	}
	c, err := r.Connect(r.ctx(), &taskapi.ConnectRequest{ID: "sb"})
	if err != nil || c.ShimPid == 0 || c.TaskPid != c.ShimPid {
		t.Errorf("Connect answered %v, %v", c, err)
	}
	if _, err := r.Pids(r.ctx(), &taskapi.PidsRequest{ID: "nobody"}); status.Code(err) != codes.NotFound {
		t.Errorf("Pids of an unknown container: %v", err)
	}
}

// A failure of the cloud reaches containerd with its code and leaves nothing.
func TestVMThatDoesNotStart(t *testing.T) {
	r := newRig(t)
	r.node.StartErr = status.Error(codes.ResourceExhausted, "no capacity in zone z")
	err := r.create(&taskapi.CreateTaskRequest{ID: "sb"}, podSpecOf("sandbox", "true"))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "no capacity in zone z") {
		t.Errorf("error %v", err)
	}
	if r.node.VMs() != 0 {
		t.Error("a VM is left")
	}
	r.Shutdown(r.ctx(), &taskapi.ShutdownRequest{})
	<-r.exited
}

func TestContainerThatCannotBeCreated(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*oci.Spec)
		want   string
	}{
		"device":    {func(s *oci.Spec) { s.Linux.Devices = []oci.LinuxDevice{{Path: "/dev/fuse"}} }, "privileged_without_host_devices"},
		"image":     {func(s *oci.Spec) { delete(s.Annotations, keysImage[0]) }, "image-name"},
		"sandbox":   {func(s *oci.Spec) { s.Annotations["io.kubernetes.cri.sandbox-id"] = "other" }, "sandbox other is not running"},
		"character": {func(s *oci.Spec) { s.Mounts = []oci.Mount{{Type: "bind", Source: "/dev/null", Destination: "/x"}} }, "mount /x: /dev/null is a device"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.sandbox()
			spec := podSpecOf("container", "true")
			tc.change(spec)
			err := r.create(&taskapi.CreateTaskRequest{ID: "app"}, spec)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// StopVM is repeated while the hypervisor service is being restarted.
func TestStopVMIsRepeated(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	r.node.StopErr = status.Error(codes.Unavailable, "shutting down")
	r.Kill(r.ctx(), &taskapi.KillRequest{ID: "sb", Signal: 9})
	r.waitExit("sb", "")
	if r.node.VMs() != 0 {
		t.Error("the VM is left")
	}
}

func TestUnreachable(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("connect: connection refused"), true},
		{status.Error(codes.Unavailable, "x"), true},
		{status.Error(codes.NotFound, "x"), false},
	} {
		if got := unreachable(tc.err); got != tc.want {
			t.Errorf("%v: %v", tc.err, got)
		}
	}
}

func TestVolumesAreCopiedAgain(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	dir := filepath.Join(r.dir, "pods/u/volumes/kubernetes.io~configmap/cm")
	writeVersion(t, dir, "..1", "old")
	if err := os.Symlink("..data/key", filepath.Join(dir, "key")); err != nil {
		t.Fatal(err)
	}
	spec := podSpecOf("container", "sleep", "infinity")
	spec.Mounts = []oci.Mount{{Type: "bind", Source: dir, Destination: "/cfg", Options: []string{"rbind", "ro"}}}
	if err := r.create(&taskapi.CreateTaskRequest{ID: "app"}, spec); err != nil {
		t.Fatal(err)
	}
	guest := r.node.Agent("sb").Created()["app"].OCI.Mounts[0]
	if diff := cmp.Diff([]string{"rbind", "ro"}, guest.Options); diff != "" {
		t.Error(diff)
	}
	link := func() string {
		if f := r.node.Agent("sb").Files()[guest.Source+"/..data"]; f != nil {
			return string(f.Data)
		}
		return ""
	}
	if link() != "..1" {
		t.Fatalf("the link in the guest is %q", link())
	}
	writeVersion(t, dir, "..2", "new")
	os.RemoveAll(filepath.Join(dir, "..1"))
	for deadline := time.Now().Add(time.Minute); link() != "..2"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the link in the guest is %q", link())
		}
	}
	if f := r.node.Agent("sb").Files()[guest.Source+"/..2/key"]; string(f.Data) != "new" {
		t.Errorf("the guest has %q", f.Data)
	}
}

// writeVersion changes a volume as the kubelet does.
func writeVersion(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name, "key"), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// TestStateWaitsForTheReader: a containerd that has restarted, and asks for the state of what ended meanwhile, has its
// output by then. One that does not read has the state all the same.
func TestStateWaitsForTheReader(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	r.app("app", "sleep", "infinity")
	f := r.fifos("e1")
	r.exec("e1", f, "echo", "last words")
	r.waitExit("app", "e1")
	began := time.Now()
	s, err := r.State(r.ctx(), &taskapi.StateRequest{ID: "app", ExecID: "e1"})
	if err != nil || s.Status != task.Status_STOPPED || time.Since(began) < readerPatience {
		t.Errorf("after %v: %v, %v", time.Since(began), s, err)
	}
	_, p, err := r.process("app", "e1")
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() { read <- f.read(f.stdout) }()
	p.stdio.AwaitReader(t.Context(), time.Minute)
	if n := unread(p.stdio.stdout); n > 0 {
		t.Errorf("%d bytes are unread", n)
	}
	if got := <-read; got != "last words\n" {
		t.Errorf("read %q", got)
	}
}
