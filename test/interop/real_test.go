// SPDX-License-Identifier: Apache-2.0

//go:build integration

package interop

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/tier"
)

// long are cases that take time: with our shim they run in `make test-all`, with Kata's
// wherever it is.
var long = []testCase{
	{"Sysctls", sysctls},
	{"SharedProcessNamespace", sharedProcessNamespace},
	{"FSGroup", fsGroup},
	{"PolicyIsRefused", policyIsRefused},
	{"ManyExecs", manyExecs},
	{"ClockJump", clockJump},
	{"GuestPanic", guestPanic},
}

// fsGroup of a pod is shown to shims by the group of the volumes' folders on the
// node, as kubelet makes them.
func fsGroup(t *testing.T, c *client) {
	const group = 4711
	volumes := filepath.Join(c.node.kubelet, "pods/44444444-2222-3333-4444-555555555555/volumes/kubernetes.io~empty-dir")
	var mounts []*cri.Mount
	for _, name := range []string{"memory", "disk"} {
		path := filepath.Join(volumes, name)
		if err := os.MkdirAll(path, 0o777); err != nil {
			t.Fatal(err)
		}
		if name == "memory" {
			stand.Run(t, "mount", "-t", "tmpfs", "tmpfs", path)
			t.Cleanup(func() { stand.Run(t, "umount", "-l", path) })
		}
		if err := os.Chown(path, 0, group); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o777|os.ModeSetgid); err != nil {
			t.Fatal(err)
		}
		mounts = append(mounts, &cri.Mount{ContainerPath: "/" + name, HostPath: path})
	}
	app := c.runPod(t, "fsgroup", nil).start(t, "app", func(config *cri.ContainerConfig) {
		config.Mounts = mounts
		config.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: 1000}
		config.Linux.SecurityContext.RunAsGroup = &cri.Int64Value{Value: 2000}
		config.Linux.SecurityContext.SupplementalGroups = []int64{group}
	}, "sleep", "infinity")
	for _, name := range []string{"memory", "disk"} {
		out, stderr, _ := app.exec(t, "sh", "-c", "cd /"+name+" && touch file && stat -c '%g' . file")
		if want := fmt.Sprintf("%d\n%d\n", group, group); out != want {
			t.Errorf("groups of the %s volume and a file of user 1000 are %q, want %q; %s", name, out, want, stderr)
		}
	}
	if out, _, _ := app.exec(t, "sh", "-c", "grep ' /memory ' /proc/mounts"); !strings.Contains(out, "tmpfs") {
		t.Errorf("the memory volume is %q", out)
	}
}

// policyIsRefused: where nothing enforces a policy, a pod with one does not start.
func policyIsRefused(t *testing.T, c *client) {
	const document = "algorithm = \"sha384\"\nversion = \"0.1.0\"\n[data]\n" +
		"\"policy.rego\" = '''\npackage agent_policy\ndefault ExecProcessRequest := false\n'''\n"
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	fmt.Fprint(w, document)
	w.Close()
	config := c.podConfig(t, "policy")
	config.Annotations = map[string]string{
		"io.katacontainers.config.hypervisor.cc_init_data": base64.StdEncoding.EncodeToString(packed.Bytes()),
	}
	res, err := c.RunPodSandbox(c.ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: "kata-remote"})
	if err == nil {
		(&pod{client: c, id: res.PodSandboxId, name: "policy", config: config}).remove(t)
		t.Fatal("a pod whose initdata has a policy.rego has started")
	}
	if !strings.Contains(err.Error(), "policy.rego") {
		t.Errorf("the error does not name the policy: %v", err)
	}
	noQEMU(t, c.node)
}

// manyExecs runs eight at a time, each with an output and a code of its own.
func manyExecs(t *testing.T, c *client) {
	app := c.runPod(t, "execs", nil).start(t, "app", nil, "sleep", "infinity")
	jobs, wait := make(chan int), sync.WaitGroup{}
	for range 8 {
		wait.Go(func() {
			for i := range jobs {
				res, err := c.ExecSync(c.ctx, &cri.ExecSyncRequest{ContainerId: app.id, Timeout: 300,
					Cmd: []string{"sh", "-c", fmt.Sprintf("echo out-%d; echo err-%d >&2; exit %d", i, i, i%250)}})
				if err != nil {
					t.Errorf("exec %d: %v", i, err)
				} else if out := string(res.Stdout) + string(res.Stderr); out != fmt.Sprintf("out-%d\nerr-%d\n", i, i) || int(res.ExitCode) != i%250 {
					t.Errorf("exec %d answered %q, exit code %d", i, out, res.ExitCode)
				}
			}
		})
	}
	for i := range tier.Rounds(t, c.node.shim.execs, c.node.shim.execs) {
		jobs <- i
	}
	close(jobs)
	wait.Wait()
	if out, _, _ := app.exec(t, "sh", "-c", "ls -d /proc/[0-9]* | wc -l"); lines(out) > 4 {
		t.Errorf("processes are left in the container: %s", out)
	}
}

func lines(count string) int {
	n, err := strconv.Atoi(strings.TrimSpace(count))
	if err != nil {
		return math.MaxInt
	}
	return n
}

// clockJump stops the VM's processors for 25 s, as the move of a VM to another
// host does. Right after that the guest's clock has to be the node's again.
func clockJump(t *testing.T, c *client) {
	const stopped, tolerated, soon = 25 * time.Second, 2 * time.Second, 5 * time.Second
	app := c.runPod(t, "clock", nil).start(t, "app", nil, "sleep", "infinity")
	behind := func() time.Duration {
		before := time.Now()
		out, _, _ := app.exec(t, "date", "+%s")
		seconds, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return before.Sub(time.Unix(seconds+1, 0)) // date has cut the rest off
	}
	if off := behind(); off > tolerated {
		t.Fatalf("the guest's clock is %v behind before all", off)
	}
	qmp(t, c.node, "stop")
	<-time.After(stopped) // what is tested is that much time
	qmp(t, c.node, "cont")
	resumed := time.Now()
	eventually(t, func() error {
		if off := behind(); off > tolerated {
			return fmt.Errorf("the guest's clock is %v behind", off)
		}
		return nil
	})
	took := time.Since(resumed)
	t.Logf("the guest's clock was right within %v", took)
	if took > soon {
		t.Errorf("the guest's clock was right %v after the VM went on, want %v", took, soon)
	}
}

// guestPanic: the kernel of the guest ends, QEMU with it, and the pod's containers are
// said to have ended.
func guestPanic(t *testing.T, c *client) {
	const soon = 5 * time.Second // 1 s on a busy machine; without a look at the VM it took 43 s
	p := c.runPod(t, "panic", func(config *cri.PodSandboxConfig) { config.Linux.SecurityContext.Privileged = true })
	app := p.start(t, "app", func(config *cri.ContainerConfig) { config.Linux.SecurityContext.Privileged = true },
		"sh", "-c", "until [ -e /go ]; do sleep 0.1; done; echo c > /proc/sysrq-trigger; sleep infinity")
	consoles, _ := filepath.Glob(c.node.dir + "/qemu/instances/*/console.log")
	if len(consoles) != 1 {
		t.Fatalf("%d VMs, want the pod's only: %v", len(consoles), consoles)
	}
	console, err := os.Open(consoles[0]) // which goes with the VM
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	app.exec(t, "touch", "/go")
	asked := time.Now()
	if code, _ := app.waitExit(t); code == 0 {
		t.Error("the container of a VM that has panicked has exit code 0")
	}
	if text, err := io.ReadAll(console); err != nil || !strings.Contains(string(text), "Kernel panic") {
		t.Errorf("the guest did not panic: %v; its container wrote %q; its console ends with %q", err, app.output(t, "stderr"), text[max(0, len(text)-500):])
	}
	took := time.Since(asked)
	t.Logf("the panic was noticed within %v", took)
	if took > soon {
		t.Errorf("the panic was noticed after %v, want %v", took, soon)
	}
	p.remove(t)
	p.waitGone(t)
}

// qmp has the node's only VM obey a command of the QEMU Machine Protocol.
func qmp(t *testing.T, s *node, command string) {
	t.Helper()
	sockets, _ := filepath.Glob(s.dir + "/qemu/instances/*/qmp.sock")
	if len(sockets) != 1 {
		t.Fatalf("%d VMs, want the pod's only: %v", len(sockets), sockets)
	}
	// The path is too long for an address (unix(7)).
	folder, err := unix.Open(filepath.Dir(sockets[0]), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(folder)
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/qmp.sock", folder))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "{\"execute\":\"qmp_capabilities\"}\n{\"execute\":%q}\n", command)
	for answers, scanner := 0, bufio.NewScanner(conn); answers < 2; {
		if !scanner.Scan() {
			t.Fatalf("QMP %s: no answer: %v", command, scanner.Err())
		}
		if line := scanner.Text(); strings.HasPrefix(line, `{"return"`) {
			answers++
		} else if strings.HasPrefix(line, `{"error"`) {
			t.Fatalf("QMP %s: %s", command, line)
		}
	}
}

// noQEMU waits until no VM is left.
func noQEMU(t *testing.T, s *node) {
	t.Helper()
	eventually(t, func() error {
		if qemus := stand.QEMUs(s.dir); len(qemus) > 0 {
			return fmt.Errorf("QEMUs still run: %v", qemus)
		}
		return nil
	})
}
