// SPDX-License-Identifier: Apache-2.0

//go:build integration

package interop

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/tier"
)

type testCase struct {
	name string
	run  func(*testing.T, *client)
}

// containers are what any shim has to do for a container: one pod has them all.
var containers = []struct {
	name string
	run  func(*testing.T, *pod)
}{
	{"ExecWithStdin", execWithStdin},
	{"ExecOnATerminal", execOnATerminal},
	{"Stats", stats},
	{"Update", update},
	{"OOM", oom},
	{"ConfigMapUpdate", configMapUpdate},
	{"Kill", kill},
	{"TwoContainers", twoContainers},
}

// pods are what any shim has to do for pods.
var pods = []testCase{
	{"LifeOfAPod", lifeOfAPod},
	{"ManyAtOnce", manyAtOnce},
	{"ManyInARow", manyInARow},
}

// TestPods is about our own shim.
func TestPods(t *testing.T) {
	runCases(t, ourShim, slices.Concat(pods, onlyAll(long), own, onlyAll(ownLong)))
}

// onlyAll are cases that run in `make test-all` alone.
func onlyAll(cases []testCase) (later []testCase) {
	for _, tc := range cases {
		later = append(later, testCase{tc.name, func(t *testing.T, c *client) {
			tier.OnlyAll(t)
			tc.run(t, c)
		}})
	}
	return later
}

// TestPodsOfKata is about the Kata shim.
func TestPodsOfKata(t *testing.T) { runCases(t, kataShim, slices.Concat(pods, long)) }

// runCases shares one node among its cases, as pods do.
func runCases(t *testing.T, find func(testing.TB) shim, cases []testCase) {
	s := newNode(t, find)
	c := newClient(t, s)
	p := c.runPod(t, "containers", nil)
	for _, tc := range containers {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, p) })
	}
	p.remove(t)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, &client{c.RuntimeServiceClient, s, t.Context()}) })
	}
	t.Run("NothingLeft", func(t *testing.T) { nothingLeft(t, s) })
}

func lifeOfAPod(t *testing.T, c *client) {
	p := c.runPod(t, "life", nil)
	app := p.start(t, "app", nil, "sh", "-c", "echo out-line; echo err-line >&2; trap 'echo got TERM; exit 7' TERM; while :; do sleep 0.2; done")
	app.waitOutput(t, "out-line\n")
	// The streams have no order between them.
	eventually(t, func() error {
		if got := app.output(t, "stderr"); got != "err-line\n" {
			return fmt.Errorf("stderr = %q", got)
		}
		return nil
	})
	out, _, code := app.exec(t, "sh", "-c", "echo $FOO $(hostname); exit 5")
	if out != "bar life\n" || code != 5 {
		t.Errorf("exec answered %q, exit code %d", out, code)
	}
	if out, _, _ := app.exec(t, "cat", "/etc/resolv.conf"); !strings.Contains(out, "nameserver 10.213.77.1") {
		t.Errorf("resolv.conf is %q", out)
	}
	if out, _, _ := app.exec(t, "ip", "addr", "show", "eth0"); !strings.Contains(out, "inet 10.213.77.") || !strings.Contains(out, "inet6 fd21:3:") {
		t.Errorf("the pod's interface is not in its VM:\n%s", out)
	}
	if _, err := p.StopContainer(c.ctx, &cri.StopContainerRequest{ContainerId: app.id, Timeout: 60}); err != nil {
		t.Fatal(err)
	}
	if code, _ := app.waitExit(t); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	app.waitOutput(t, "got TERM\n")
}

// sysctls of a pod come with its sandbox, not with its containers: one of each
// kind, the network's, the ipc namespace's and the VM's.
func sysctls(t *testing.T, c *client) {
	want := map[string]string{"net.ipv4.ip_unprivileged_port_start": "77", "kernel.shmmni": "4711", "vm.max_map_count": "65531"}
	app := c.runPod(t, "sysctls", func(config *cri.PodSandboxConfig) { config.Linux.Sysctls = want }).start(t, "app", nil, "sleep", "infinity")
	for name, value := range want {
		path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
		if out, _, code := app.exec(t, "cat", path); code != 0 || strings.TrimSpace(out) != value {
			t.Errorf("%s is %q, want %s", name, out, value)
		}
	}
}

func execWithStdin(t *testing.T, p *pod) {
	app := p.start(t, "stdin", nil, "sleep", "infinity")
	// The reader ends only after cat has echoed everything: the shim drops
	// output that comes after the end of stdin (kata-containers #13640).
	out, err := app.stream(t, strings.NewReader("piped-data\n"), nil, "head", "-n", "1")
	if err != nil || out != "piped-data\n" {
		t.Errorf("exec -i answered %q, %v", out, err)
	}
	_, err = app.stream(t, strings.NewReader(""), nil, "sh", "-c", "exit 4")
	if err == nil || !strings.Contains(err.Error(), "exit code 4") {
		t.Errorf("exec -i of exit 4: %v", err)
	}
}

func execOnATerminal(t *testing.T, p *pod) {
	app := p.start(t, "tty", nil, "sleep", "infinity")
	stdin, writer := io.Pipe()
	go io.WriteString(writer, "until [ \"$(stty size)\" = '33 111' ]; do sleep 0.1; done; stty size; exit 9\n")
	out, err := app.stream(t, stdin, &remotecommand.TerminalSize{Width: 111, Height: 33}, "sh")
	if !strings.Contains(out, "\r\n33 111\r\n") {
		t.Errorf("terminal showed %q", out)
	}
	if err == nil || !strings.Contains(err.Error(), "exit code 9") {
		t.Errorf("exec -it of exit 9: %v", err)
	}
}

func stats(t *testing.T, p *pod) {
	limit := func(config *cri.ContainerConfig) { config.Linux.Resources.MemoryLimitInBytes = 128 << 20 }
	app := p.start(t, "stats", limit, "sleep", "infinity")
	res, err := p.ContainerStats(p.ctx, &cri.ContainerStatsRequest{ContainerId: app.id})
	if err != nil {
		t.Fatal(err)
	}
	memory := res.Stats.Memory
	if working := memory.WorkingSetBytes.GetValue(); working == 0 || working > 128<<20 {
		t.Errorf("working set is %d bytes", working)
	}
	if available := memory.AvailableBytes.GetValue(); available == 0 || available > 128<<20 {
		t.Errorf("available memory is %d bytes of a limit of 128 MiB", available)
	}
	if res.Stats.Cpu.UsageCoreNanoSeconds.GetValue() == 0 {
		t.Error("no CPU time")
	}
}

func update(t *testing.T, p *pod) {
	limit := func(config *cri.ContainerConfig) { config.Linux.Resources.MemoryLimitInBytes = 64 << 20 }
	app := p.start(t, "update", limit, "sleep", "infinity")
	_, err := p.UpdateContainerResources(p.ctx, &cri.UpdateContainerResourcesRequest{ContainerId: app.id,
		Linux: &cri.LinuxContainerResources{MemoryLimitInBytes: 96 << 20, MemorySwapLimitInBytes: 96 << 20, CpuQuota: 60000, CpuPeriod: 100000}})
	if err != nil {
		t.Fatal(err)
	}
	if out, _, _ := app.exec(t, "sh", "-c", "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max"); out != fmt.Sprintf("%d\n60000 100000\n", 96<<20) {
		t.Errorf("limits in the guest are %q", out)
	}
}

func oom(t *testing.T, p *pod) {
	limit := func(config *cri.ContainerConfig) {
		config.Linux.Resources.MemoryLimitInBytes, config.Linux.Resources.MemorySwapLimitInBytes = 32<<20, 32<<20
	}
	app := p.start(t, "oom", limit, "sh", "-c", "tail /dev/zero")
	code, reason := app.waitExit(t)
	if code != 137 || reason != "OOMKilled" {
		t.Errorf("exit code %d, reason %q", code, reason)
	}
}

func configMapUpdate(t *testing.T, p *pod) {
	// The shim watches only paths that look like kubelet's.
	volume := filepath.Join(p.node.kubelet, "pods/11111111-2222-3333-4444-555555555555/volumes/kubernetes.io~configmap/cm")
	version := func(name, content string) {
		if err := os.MkdirAll(filepath.Join(volume, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(volume, name, "key"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		temporary := filepath.Join(volume, "..data_tmp")
		if err := os.Symlink(name, temporary); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temporary, filepath.Join(volume, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..2026_01_01_00_00_00.1", "old\n")
	if err := os.WriteFile(filepath.Join(volume, "..2026_01_01_00_00_00.1", "big"), bytes.Repeat([]byte("x"), 5<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"key", "big"} {
		if err := os.Symlink("..data/"+key, filepath.Join(volume, key)); err != nil {
			t.Fatal(err)
		}
	}
	mount := func(config *cri.ContainerConfig) {
		config.Mounts = []*cri.Mount{{ContainerPath: "/cfg", HostPath: volume, Readonly: true}}
	}
	app := p.start(t, "configmap", mount, "sleep", "infinity")
	if out, _, _ := app.exec(t, "sh", "-c", "cat /cfg/key; wc -c < /cfg/big"); out != "old\n5242880\n" {
		t.Fatalf("the config map is %q", out)
	}
	version("..2026_01_01_00_00_01.2", "new\n")
	// kubelet then removes the old one, which is what the shim waits for.
	if err := os.RemoveAll(filepath.Join(volume, "..2026_01_01_00_00_00.1")); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if out, _, _ := app.exec(t, "cat", "/cfg/key"); out != "new\n" {
			return fmt.Errorf("the config map still has %q", out)
		}
		return nil
	})
}

func kill(t *testing.T, p *pod) {
	app := p.start(t, "kill", nil, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.2; done")
	app.waitOutput(t, "ready\n")
	if _, err := p.StopContainer(p.ctx, &cri.StopContainerRequest{ContainerId: app.id, Timeout: 1}); err != nil {
		t.Fatal(err)
	}
	if code, _ := app.waitExit(t); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	if _, err := p.RemoveContainer(p.ctx, &cri.RemoveContainerRequest{ContainerId: app.id}); err != nil {
		t.Error(err)
	}
}

func twoContainers(t *testing.T, p *pod) {
	volume := filepath.Join(p.node.kubelet, "pods/22222222-2222-3333-4444-555555555555/volumes/kubernetes.io~empty-dir/ed")
	if err := os.MkdirAll(volume, 0o777); err != nil {
		t.Fatal(err)
	}
	mount := func(config *cri.ContainerConfig) {
		config.Mounts = []*cri.Mount{{ContainerPath: "/ed", HostPath: volume}}
	}
	first := p.start(t, "first", mount, "sh", "-c", "echo shared > /ed/file; nc -ll -p 7000 -e echo over-loopback & sleep infinity")
	second := p.start(t, "second", mount, "sleep", "infinity")
	eventually(t, func() error {
		out, _, _ := second.exec(t, "sh", "-c", "cat /ed/file; nc -w 5 127.0.0.1 7000 </dev/null")
		if out != "shared\nover-loopback\n" {
			return fmt.Errorf("the second container sees %q", out)
		}
		return nil
	})
	if out, _, _ := first.exec(t, "sh", "-c", "ps | grep -c 'sleep infinity' "); strings.TrimSpace(out) == "0" {
		t.Error("the first container does not see its own processes")
	}
}

func sharedProcessNamespace(t *testing.T, c *client) {
	p := c.runPod(t, "pidns", func(config *cri.PodSandboxConfig) {
		config.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	})
	p.start(t, "first", nil, "sleep", "1234567")
	second := p.start(t, "second", nil, "sleep", "infinity")
	if out, _, _ := second.exec(t, "ps"); !strings.Contains(out, "sleep 1234567") {
		t.Errorf("the second container does not see the first one's process:\n%s", out)
	}
}

func manyAtOnce(t *testing.T, c *client) {
	for i := range tier.Rounds(t, 3, 5) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			onePod(t, &client{c.RuntimeServiceClient, c.node, t.Context()}, fmt.Sprintf("at-once-%d", i))
		})
	}
}

// longPod is what one pod may take on a loaded machine, with what a test still does
// after it.
const longPod = 5 * time.Minute

func manyInARow(t *testing.T, c *client) {
	rounds := tier.Rounds(t, 2, c.node.shim.inARow)
	for i := range rounds {
		if deadline, ok := t.Deadline(); ok && time.Until(deadline) < longPod {
			t.Fatalf("%d of %d pods have run, and -timeout leaves no time for more: give it more", i, rounds)
		}
		onePod(t, c, fmt.Sprintf("in-a-row-%d", i))
	}
}

// onePod runs a pod to its end.
func onePod(t *testing.T, c *client, name string) {
	p := c.runPod(t, name, nil)
	app := p.start(t, "app", nil, "sh", "-c", "echo hello from $(hostname); exit 3")
	if code, _ := app.waitExit(t); code != 3 {
		t.Errorf("%s: exit code %d, want 3", name, code)
	}
	app.waitOutput(t, "hello from "+name+"\n")
	p.remove(t)
}

// nothingLeft looks for what pods could leave on the node.
func nothingLeft(t *testing.T, s *node) {
	eventually(t, func() error {
		var left []string
		for _, pattern := range []string{s.dir + "/pods/*", s.dir + "/qemu/instances/*", "/run/netns/*"} {
			found, _ := filepath.Glob(pattern)
			left = append(left, found...)
		}
		if s.shim.tidy {
			sockets, _ := filepath.Glob("/run/containerd/s/*")
			left = append(append(left, sockets...), shimProcesses(s.shim.name, "")...)
		}
		for _, command := range []string{"ip -o link", "nft list ruleset"} {
			out := stand.Run(t, strings.Fields(command)[0], strings.Fields(command)[1:]...)
			for line := range strings.Lines(out) {
				if strings.Contains(line, "vxlan") || strings.Contains(line, "orvm") || strings.Contains(line, "outrigger") {
					left = append(left, strings.TrimSpace(line))
				}
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		}
		return nil
	})
}
