// SPDX-License-Identifier: Apache-2.0

//go:build integration

package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/ttrpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/outrigger/outrigger/test/stand"
)

// own are what our shim promises and Kata's does not keep, or not always.
var own = []testCase{
	{"Ctr", ctr},
	{"ContainerdRestarts", containerdRestarts},
	{"VMDies", vmDies},
	{"ShimKilled", shimKilled},
}

// ownLong are those of them that another test has for each part: relay and agent for
// input, the shim for its errors.
var ownLong = []testCase{
	{"InputThatEndsEarly", inputThatEndsEarly},
	{"ClearErrors", clearErrors},
}

// shimProcesses returns the process ids of shims whose command line contains id.
func shimProcesses(name, id string) []string {
	var found []string
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range paths {
		line, _ := os.ReadFile(p)
		args := strings.Split(string(line), "\x00")
		if filepath.Base(args[0]) == name && strings.Contains(string(line), id) {
			found = append(found, filepath.Base(filepath.Dir(p)))
		}
	}
	return found
}

// inputThatEndsEarly has output after the end of input.
func inputThatEndsEarly(t *testing.T, c *client) {
	app := c.runPod(t, "early", nil).start(t, "app", nil, "sleep", "infinity")
	for range 5 {
		out, err := app.stream(t, strings.NewReader("piped-data\n"), nil, "sh", "-c", "cat; sleep 0.2; echo after")
		if err != nil || out != "piped-data\nafter\n" {
			t.Fatalf("exec -i answered %q, %v", out, err)
		}
	}
	if out, _, code := app.exec(t, "cat"); out != "" || code != 0 {
		t.Errorf("cat without input answered %q, %d", out, code)
	}
}

// clearErrors are what reaches the events of a pod that cannot work.
func clearErrors(t *testing.T, c *client) {
	p := c.runPod(t, "errors", nil)
	csi := filepath.Join(c.node.kubelet, "pods/33333333-2222-3333-4444-555555555555/volumes/kubernetes.io~csi/pvc-1/mount")
	if err := os.MkdirAll(csi, 0o755); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(c.node.dir, "some.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for source, want := range map[string]string{
		"/dev/null": "device of the node",
		socket:      "socket of the node",
		csi:         "volume of plugin kubernetes.io~csi",
		"/usr":      "copy_limit_mib",
		"/etc":      "readOnly: true",
	} {
		config := &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "app"}, Image: &cri.ImageSpec{Image: c.node.registry.Ref},
			Mounts:  []*cri.Mount{{ContainerPath: "/mnt", HostPath: source, Readonly: source == "/usr"}},
			LogPath: "app.log",
			Linux:   &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{}, SecurityContext: &cri.LinuxContainerSecurityContext{}},
		}
		created, err := p.CreateContainer(p.ctx, &cri.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.StartContainer(p.ctx, &cri.StartContainerRequest{ContainerId: created.ContainerId})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a mount of %s: error %v, want %q", source, err, want)
		}
		if _, err := p.RemoveContainer(p.ctx, &cri.RemoveContainerRequest{ContainerId: created.ContainerId}); err != nil {
			t.Error(err)
		}
	}
}

// ctr runs a container without a pod, which has a VM of its own.
func ctr(t *testing.T, c *client) {
	call := func(stdin string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(c.ctx, 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "ctr", append([]string{"-a", c.node.containerd, "-n", "k8s.io"}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := call("", args...)
		if err != nil {
			t.Fatalf("ctr %v: %v\n%s", args, err, out)
		}
		return out
	}
	ref := c.node.registry.Ref
	run := []string{"run", "--runtime", c.node.shim.runtime, "--runtime-config-path", c.node.dir + "/shim.toml",
		"--annotation", "io.kubernetes.cri.image-name=" + ref, "--annotation", "io.kubernetes.cri.sandbox-namespace=default"}
	out, err := call("", append(slices.Clone(run), "--rm", ref, "once", "sh", "-c", "echo out; exit 4")...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 4 || !strings.HasPrefix(out, "out\n") {
		t.Errorf("ctr run answered %q, %v", out, err)
	}
	must(append(slices.Clone(run), "-d", ref, "stays", "sleep", "infinity")...)
	if out, err := call("piped\n", "task", "exec", "--exec-id", "e1", "stays", "cat"); err != nil || out != "piped\n" {
		t.Errorf("a pipe into ctr task exec answered %q, %v", out, err)
	}
	must("task", "pause", "stays")
	if out := must("task", "ls"); !strings.Contains(out, "PAUSED") {
		t.Errorf("after a pause: %s", out)
	}
	must("task", "resume", "stays")
	must("task", "ps", "stays")
	if out := must("task", "metrics", "stays"); !strings.Contains(out, "memory.usage_in_bytes") {
		t.Errorf("metrics: %s", out)
	}
	if out, err := call("", "task", "checkpoint", "stays"); err == nil || !strings.Contains(out, "no checkpoints") {
		t.Errorf("a checkpoint answered %q, %v", out, err)
	}
	must("task", "kill", "--signal", "KILL", "stays")
	eventually(t, func() error {
		out, err := call("", "task", "delete", "stays")
		if err != nil && strings.Contains(out, "must be stopped") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	must("container", "delete", "stays")
}

// containerdRestarts has one container live through the restart, and one end
// while containerd is down.
func containerdRestarts(t *testing.T, c *client) {
	p := c.runPod(t, "restart", nil)
	stays := p.start(t, "stays", nil, "sh", "-c", "while :; do echo tick; sleep 0.5; done")
	ends := p.start(t, "ends", nil, "sh", "-c", "until [ -e /go ]; do sleep 0.1; done; sleep 2; echo last words; exit 6")
	stays.waitOutput(t, "tick\n")
	shims := shimProcesses(c.node.shim.name, p.id)
	ends.exec(t, "touch", "/go")
	c.node.daemon.Stop(syscall.SIGKILL)
	waitStopped(t, c.node, p, ends.id)
	c.node.restart(t)

	eventually(t, func() error {
		_, err := c.Version(c.ctx, &cri.VersionRequest{})
		return err
	})
	if code, _ := ends.waitExit(t); code != 6 {
		t.Errorf("exit code %d of the container that ended meanwhile, want 6", code)
	}
	ends.waitOutput(t, "last words\n")
	if out, _, code := stays.exec(t, "sh", "-c", "echo alive; exit 3"); out != "alive\n" || code != 3 {
		t.Errorf("exec after the restart answered %q, %d", out, code)
	}
	before := strings.Count(stays.output(t, "stdout"), "tick")
	eventually(t, func() error {
		if now := strings.Count(stays.output(t, "stdout"), "tick"); now <= before {
			return fmt.Errorf("no output after the restart: %d ticks", now)
		}
		return nil
	})
	if now := shimProcesses(c.node.shim.name, p.id); !slices.Equal(now, shims) || len(now) != 1 {
		t.Errorf("shims %v, before the restart %v", now, shims)
	}
	if _, err := p.StopContainer(c.ctx, &cri.StopContainerRequest{ContainerId: stays.id, Timeout: 1}); err != nil {
		t.Fatal(err)
	}
	if code, _ := stays.waitExit(t); code != 143 && code != 137 {
		t.Errorf("exit code %d after StopContainer", code)
	}
}

// waitStopped asks the shim itself, as containerd is down.
func waitStopped(t *testing.T, s *node, p *pod, container string) {
	t.Helper()
	address, err := os.ReadFile(filepath.Join(s.dir, "containerd/state/io.containerd.runtime.v2.task/k8s.io", p.id, "address"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", strings.TrimPrefix(string(address), "unix://"))
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	eventually(t, func() error {
		state, err := taskapi.NewTTRPCTaskClient(client).State(context.Background(), &taskapi.StateRequest{ID: container})
		if err == nil && state.Status != task.Status_STOPPED {
			err = fmt.Errorf("container is %v", state.Status)
		}
		return err
	})
}

func vmDies(t *testing.T, c *client) {
	p := c.runPod(t, "vmdies", nil)
	app := p.start(t, "app", nil, "sleep", "infinity")
	qemus := stand.QEMUs(c.node.dir)
	if len(qemus) != 1 {
		t.Fatalf("%d QEMUs, want the pod's only", len(qemus))
	}
	syscall.Kill(qemus[0], syscall.SIGKILL)
	if code, _ := app.waitExit(t); code != 255 {
		t.Errorf("exit code %d, want 255", code)
	}
	waitNotReady(t, p)
	p.remove(t)
	p.waitGone(t)
}

func shimKilled(t *testing.T, c *client) {
	p := c.runPod(t, "shimkilled", nil)
	app := p.start(t, "app", nil, "sleep", "infinity")
	shims := shimProcesses(c.node.shim.name, p.id)
	if len(shims) != 1 {
		t.Fatalf("%d shims of the pod: %v", len(shims), shims)
	}
	pid, _ := strconv.Atoi(shims[0])
	syscall.Kill(pid, syscall.SIGKILL)
	if code, _ := app.waitExit(t); code == 0 {
		t.Errorf("exit code %d", code)
	}
	waitNotReady(t, p)
	// containerd runs the shim's delete, which removes the VM before the pod is.
	p.waitGone(t)
}

func waitNotReady(t *testing.T, p *pod) {
	t.Helper()
	eventually(t, func() error {
		res, err := p.PodSandboxStatus(p.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.id})
		if err == nil && res.Status.State != cri.PodSandboxState_SANDBOX_NOTREADY {
			err = fmt.Errorf("the pod is %v", res.Status.State)
		}
		return err
	})
}

// waitGone waits until the pod's VM is gone.
func (p *pod) waitGone(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		if left, _ := filepath.Glob(p.node.dir + "/pods/" + p.id + "*"); len(left) > 0 {
			return fmt.Errorf("the node still has %v", left)
		}
		if qemus := stand.QEMUs(p.node.dir); len(qemus) > 0 {
			return fmt.Errorf("QEMUs still run: %v", qemus)
		}
		return nil
	})
}
