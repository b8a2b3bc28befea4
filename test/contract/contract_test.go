// SPDX-License-Identifier: Apache-2.0

//go:build integration

package contract

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

const (
	sandboxID   = "3f3e5880399e98c91b725ae746f00c77491ba9cb26c2a15caefd51dab8780551"
	containerID = "a34c78449979a81c5b61dd67bc3915efe462d78d24c33abcb60639b686bea2e2"
	syncExec    = "5a35ab94-eb26-4ee2-a05f-fa08fc4adc7c"
	stdinExec   = "2a15e3ac-b49c-463d-bbdb-273b5313ef0b"
	ttyExec     = "4bfcd1ae-6cc6-4ec1-8465-1e09360ce58c"
)

func TestReplayOfAPod(t *testing.T) {
	testns.RequireRoot(t)
	dir := stand.Dir(t)
	registry := stand.StartRegistry(t)
	stand.StartAdaptor(t, dir)
	netns, _ := stand.PodNetns(t, dir, "replay")

	calls, answers := readRun(t, "testdata/rpc-cri-4.1.log", "A")
	r := &replay{
		t: t, socket: dir + "/hypervisor.sock", answers: answers, sandbox: sandboxID,
		lastCopy: map[string]string{}, streams: map[string]*stream{},
		substitute: strings.NewReplacer(
			"SANDBOX_ID", sandboxID, "CONTAINER_ID", containerID,
			"localhost/busybox:1", registry.Ref,
			"/var/run/netns/cni-b034c655-550a-3ae6-7d68-26efc7cd86b0", netns,
			// A cloud's instance type means nothing to QEMU.
			`"io.katacontainers.config.hypervisor.machine_type":"t3.small"`, `"io.katacontainers.config.hypervisor.machine_type":""`,
			// In the recording the container had no pid namespace; as pid 1 of
			// one a shell gets only signals that it traps (pid_namespaces(7)).
			`trap 'echo got TERM; exit 7' TERM;`, `trap 'echo got TERM; exit 7' TERM; trap 'exit 140' USR2;`,
			// The exec begins while the recorded machine's shell was already up.
			`c3R0eSBzaXplCmV4aXQgOQo=`, // "stty size\nexit 9\n"
			`dW50aWwgc3R0eSBzaXplIHwgZ3JlcCAtcSAiMzMgMTExIjsgZG8gc2xlZXAgMC4xOyBkb25lOyBzdHR5IHNpemU7IGV4aXQgOQo=`,
		),
	}
	r.run(calls)
	if t.Failed() {
		return
	}
	checkStreams(t, r)
	checkStats(t, r)
	for _, pattern := range []string{"/pods/*", "/qemu/instances/*"} {
		if left, _ := filepath.Glob(dir + pattern); len(left) > 0 {
			t.Errorf("after StopVM there is still %v", left)
		}
	}
}

// sleepsEnd is what the shell may say on its standard error: the signal goes
// to all processes, and the shell reports the end of its sleep if it sees that
// before its own signal.
const sleepsEnd = "User defined signal 2\n"

func checkStreams(t *testing.T, r *replay) {
	t.Helper()
	for _, want := range []struct{ exec, stream, text string }{
		{containerID, "ReadStdout", "out-line\nconfigmap-value\nsearch svc.local\nnameserver 127.0.0.53\n"},
		{containerID, "ReadStderr", "err-line\n"},
		{syncExec, "ReadStdout", "exec-ok bar p1host\n/cfg:\nkey\n\n/ed:\n"},
		{syncExec, "ReadStderr", ""},
		{stdinExec, "ReadStdout", "piped-data\n"},
		{stdinExec, "ReadStderr", "done\n"},
	} {
		s := r.streams[want.exec+" "+want.stream]
		if s == nil {
			t.Errorf("no %s of %s", want.stream, want.exec)
		} else if strings.TrimSuffix(string(s.data), sleepsEnd) != want.text {
			t.Errorf("%s of %s delivered %q, want %q", want.stream, want.exec, s.data, want.text)
		}
	}
	if s := r.streams[ttyExec+" ReadStdout"]; s == nil || !strings.Contains(string(s.data), "33 111\r\n") {
		t.Errorf("the terminal did not take its size: %q", s.data)
	}
}

func checkStats(t *testing.T, r *replay) {
	t.Helper()
	if len(r.stats) != 2 {
		t.Fatalf("%d answers of StatsContainer, want 2", len(r.stats))
	}
	for _, s := range r.stats {
		cgroup := s.GetCgroupStats()
		if limit := cgroup.GetMemoryStats().GetUsage().GetLimit(); limit != 256<<20 {
			t.Errorf("memory limit %d, want that of the spec, %d", limit, 256<<20)
		}
		if cgroup.GetMemoryStats().GetUsage().GetUsage() == 0 || cgroup.GetCpuStats().GetCpuUsage().GetTotalUsage() == 0 {
			t.Errorf("stats without memory or CPU use: %v", cgroup)
		}
		if len(s.NetworkStats) == 0 || s.NetworkStats[0].Name != "eth0" {
			t.Errorf("stats without the pod's interface: %v", s.NetworkStats)
		}
	}
}
