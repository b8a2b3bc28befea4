// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/internal/cli/manifest"
	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/procid"
)

// manifestOf writes a pod whose containers have the stand's image.
func (s *stand) manifestOf(spec string) string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "pod.yaml")
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: p1, labels: {app: x}}\nspec:\n" + strings.ReplaceAll(spec, "IMAGE", s.image)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

func TestPlayRestartsAsThePolicySays(t *testing.T) {
	for policy, want := range map[string]struct {
		runs, code int
	}{"Never": {1, 3}, "OnFailure": {2, 0}} {
		s := newStand(t)
		count := filepath.Join(t.TempDir(), "count")
		file := s.manifestOf(`  restartPolicy: ` + policy + `
  containers:
  - {name: a, image: IMAGE, command: [sh, -c, 'echo x >>` + count + `; [ $(wc -l <` + count + `) = 2 ] || exit 3']}
  - {name: b, image: IMAGE, command: [sh, -c, 'printf "1\n2"; echo 3'], securityContext: {runAsUser: 7, capabilities: {drop: [ALL]}}}
`)
		code, stdout, stderr := s.run("play", "-q", file)
		data, _ := os.ReadFile(count)
		if code != want.code || strings.Count(string(data), "x") != want.runs || stdout != "[b] 1\n[b] 23\n" {
			t.Errorf("%s: code %d, %q runs, %q, %s", policy, code, data, stdout, stderr)
		}
	}
}

func TestPlayPassesSignalsOn(t *testing.T) {
	s := newStand(t)
	file := s.manifestOf(`  containers:
  - {name: a, image: IMAGE, command: [sh, -c, "trap 'exit 5' TERM; echo up; while :; do sleep 0.02; done"]}
`)
	out, done := &buffer{}, make(chan int)
	go func() {
		done <- s.app(nil, out, &buffer{}).Run([]string{"--root", s.root, "--socket", s.node.Socket, "play", file})
	}()
	eventually(t, "it is up", func() bool { return out.String() == "up\n" })
	syscall.Kill(os.Getpid(), syscall.SIGTERM)
	if code := <-done; code != 5 { // and is not restarted
		t.Errorf("code %d", code)
	}
}

func TestPlayInitContainerThatFails(t *testing.T) {
	s := newStand(t)
	file := s.manifestOf(`  restartPolicy: Never
  initContainers: [{name: i, image: IMAGE, command: [sh, -c, "exit 6"]}]
  containers: [{name: a, image: IMAGE, command: [echo, never]}]
`)
	if code, stdout, stderr := s.run("play", file); code != 6 || stdout != "" || !strings.Contains(stderr, "init container i ended with 6") {
		t.Errorf("code %d, %q, %s", code, stdout, stderr)
	}
}

// TestInitContainerIsHeard: what one said that failed is in the log, until rm.
func TestInitContainerIsHeard(t *testing.T) {
	s := newStand(t)
	req := s.inBackground(`  restartPolicy: Never
  initContainers: [{name: i, image: IMAGE, command: [sh, -c, "echo why; exit 6"]}]
  containers: [{name: a, image: IMAGE, command: [echo, never]}]
`)
	req.Keep = true
	if err := s.app(nil, &buffer{}, &buffer{}).startMonitor(t.Context(), req, true); err == nil {
		t.Error("a pod whose init container fails has started")
	}
	if _, out, stderr := s.run("logs", "p1"); out != "[i] why\n" {
		t.Errorf("log %q, %s", out, stderr)
	}
}

// TestPlayRetriesInitContainers: the pod is not running before they have succeeded.
func TestPlayRetriesInitContainers(t *testing.T) {
	s := newStand(t)
	dir := t.TempDir()
	file := s.manifestOf(`  restartPolicy: OnFailure
  initContainers: [{name: i, image: IMAGE, command: [sh, -c, 'echo x >>` + dir + `/count; [ $(wc -l <` + dir + `/count) = 2 ] || exit 3; while [ ! -e ` + dir + `/go ]; do sleep 0.02; done']}]
  containers: [{name: a, image: IMAGE, command: [echo, there]}]
`)
	done, out := make(chan int), &buffer{}
	go func() {
		done <- s.app(nil, out, &buffer{}).Run([]string{"--root", s.root, "--socket", s.node.Socket, "play", file})
	}()
	eventually(t, "it is tried again", func() bool {
		data, _ := os.ReadFile(dir + "/count")
		return string(data) == "x\nx\n"
	})
	if _, state, _ := s.run("ps", "--format", "{{.State}}"); state != "creating\n" {
		t.Errorf("while it initializes the pod is %q", state)
	}
	os.WriteFile(dir+"/go", nil, 0o600)
	if code := <-done; code != 0 || out.String() != "[a] there\n" {
		t.Errorf("code %d, %q", code, out.String())
	}
}

// TestStopAfterTheMonitorWasKilled: the next command of all is stop, so it has to signal the monitor that it starts.
func TestStopAfterTheMonitorWasKilled(t *testing.T) {
	for name, flags := range map[string][]string{"kept": {"--rm=false"}, "restarted": {"--rm=false", "--restart", "always"}, "not-kept": nil} {
		s := newStand(t)
		s.detached(name, "trap 'exit 4' TERM; echo up; while :; do sleep 0.02; done", flags...)
		eventually(t, "it is up", func() bool { _, out, _ := s.run("logs", name); return out == "up\n" })
		s.killMonitor(name)
		if code, _, stderr := s.run("stop", name); code != 0 || s.node.VMs() != 0 {
			t.Errorf("%s: code %d, %d VMs, %s", name, code, s.node.VMs(), stderr)
		}
	}
}

// killMonitor kills the monitor of a pod.
func (s *stand) killMonitor(name string) {
	s.t.Helper()
	p, err := (&node.Node{Root: s.root}).Pods().Find(name)
	if err != nil {
		s.t.Fatal(err)
	}
	p.Owner.Signal(syscall.SIGKILL)
	if !p.Owner.WaitGone(time.Minute) {
		s.t.Fatal("the monitor does not end")
	}
}

// TestPlayRestartsWhileItGetsReady: a is ready when b, which fails at first, has run for the second time. Meanwhile
// the pod runs, and the last line of b has no end.
func TestPlayRestartsWhileItGetsReady(t *testing.T) {
	s := newStand(t)
	dir := t.TempDir()
	p := s.inBackground(`  containers:
  - {name: a, image: IMAGE, command: [sleep, "1000"], readinessProbe: {exec: {command: [test, -e, ` + dir + `/ready]}, periodSeconds: 1}}
  - {name: b, image: IMAGE, command: [sh, -c, 'printf once; [ -e ` + dir + `/again ] && touch ` + dir + `/ready; touch ` + dir + `/again; exit 3']}
`)
	started, said := make(chan error, 1), &buffer{}
	go func() { started <- s.app(nil, &buffer{}, said).startMonitor(t.Context(), p, false) }()
	eventually(t, "the pod runs", func() bool { _, out, _ := s.run("ps", "--format", "{{.State}}"); return out == "running\n" })
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if want := "waiting until container a is ready\nwaiting until container a is ready: its readinessProbe failed: test ended with 1\n"; !strings.Contains(said.String(), want) {
		t.Errorf("it was said: %s", said)
	}
	eventually(t, "both runs are in the log", func() bool { _, out, _ := s.run("logs", "p1"); return strings.HasPrefix(out, "[b] once\n[b] once\n") })
}

// TestPlayThatWillNotBeReady: the container that fails for good is an error, and others run on.
func TestPlayThatWillNotBeReady(t *testing.T) {
	s := newStand(t)
	p := s.inBackground(`  restartPolicy: Never
  containers:
  - {name: a, image: IMAGE, command: [sh, -c, "exit 3"], readinessProbe: {exec: {command: ["false"]}}}
  - {name: b, image: IMAGE, command: [sleep, "1000"]}
`)
	err := s.app(nil, &buffer{}, &buffer{}).startMonitor(t.Context(), p, true)
	var code exitError
	if !errors.As(err, &code) || code.Code != 3 || !strings.Contains(err.Error(), "container a ended with 3 before it was ready") {
		t.Errorf("error %v", err)
	}
	if code, _, stderr := s.run("exec", "-c", "b", "p1", "true"); code != 0 {
		t.Errorf("exec in b: %d, %s", code, stderr)
	}
}

// TestPlayThatIsStoppedBeforeItIsReady: it is not a success.
func TestPlayThatIsStoppedBeforeItIsReady(t *testing.T) {
	s := newStand(t)
	p := s.inBackground(`  containers:
  - {name: a, image: IMAGE, command: [sh, -c, "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done"], readinessProbe: {exec: {command: ["false"]}}}
`)
	started := make(chan error, 1)
	go func() { started <- s.app(nil, &buffer{}, &buffer{}).startMonitor(t.Context(), p, true) }()
	eventually(t, "it is up", func() bool { _, out, _ := s.run("logs", "p1"); return out == "up\n" })
	s.run("stop", "p1")
	if err := <-started; err == nil || !strings.Contains(err.Error(), "ended before it was ready") {
		t.Errorf("error %v", err)
	}
}

// TestPlayStartsAgainWhenTheAgentRefuses: as when a registry is away.
func TestPlayStartsAgainWhenTheAgentRefuses(t *testing.T) {
	s := newStand(t)
	file := s.manifestOf(`  restartPolicy: OnFailure
  containers: [{name: a, image: IMAGE, command: [sh, -c, "exit 3"]}]
`)
	out, errs, done := &buffer{}, &buffer{}, make(chan int)
	go func() {
		done <- s.app(nil, out, errs).Run([]string{"--root", s.root, "--socket", s.node.Socket, "play", file})
	}()
	eventually(t, "it has failed", func() bool { return strings.Contains(errs.String(), "container a ended with 3") })
	s.node.Refuse(errors.New("registry is away"))
	eventually(t, "it could not be started again", func() bool {
		return strings.Contains(errs.String(), "cannot be started again, which is tried again: ")
	})
	s.node.Refuse(nil)
	eventually(t, "it runs again", func() bool { return strings.Count(errs.String(), "container a ended with 3") == 2 })
	syscall.Kill(os.Getpid(), syscall.SIGTERM)
	if code := <-done; code != 3 {
		t.Errorf("code %d, %s", code, errs.String())
	}
}

// TestExecIsNoMoreThanItsContainer: user, environment and rights of the container itself, also those of probes after
// the monitor was replaced.
func TestExecIsNoMoreThanItsContainer(t *testing.T) {
	s := newStand(t)
	p := s.inBackground(`  containers:
  - {name: a, image: IMAGE, command: [sleep, "1000"], env: [{name: SECRET, value: a}]}
  - name: b
    image: IMAGE
    command: [sleep, "1000"]
    workingDir: /tmp
    securityContext: {runAsUser: 7, runAsGroup: 8, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    livenessProbe: {exec: {command: [sh, -c, ":"]}, periodSeconds: 1}
`)
	if err := s.app(nil, &buffer{}, &buffer{}).startMonitor(t.Context(), p, true); err != nil {
		t.Fatal(err)
	}
	s.killMonitor("p1")
	if code, _, stderr := s.run("exec", "-c", "b", "p1", "true"); code != 0 {
		t.Fatalf("exec: %d, %s", code, stderr)
	}
	seen := len(s.node.Agents()[0].Execs())
	eventually(t, "the new monitor probes", func() bool { return len(s.node.Agents()[0].Execs()) > seen })
	for _, e := range s.node.Agents()[0].Execs() {
		got := e.Process
		if got.User.UID != 7 || got.User.GID != 8 || got.Cwd != "/tmp" || !got.NoNewPrivileges || len(got.Capabilities.Effective) != 0 || slices.Contains(got.Env, "SECRET=a") {
			t.Errorf("%v runs as %v in %s with %v, %v, %v", got.Args, got.User, got.Cwd, got.Env, got.Capabilities, got.NoNewPrivileges)
		}
	}
}

// TestWaitAndStopOfPodsThatRestart: the code is that of the pod's end, and stop says how long that may take.
func TestWaitAndStopOfPodsThatRestart(t *testing.T) {
	s := newStand(t)
	dir := t.TempDir()
	s.detached("p2", "trap 'sleep 0.5; exit 4' TERM; echo up; [ -e "+dir+"/go ] || { touch "+dir+"/go; exit 3; }; while :; do sleep 0.02; done", "--restart", "always", "--stop-timeout", "100ms")
	codes := make(chan string, 2)
	wait := func() { _, out, stderr := s.run("wait", "p2"); codes <- out + stderr }
	attach := func() { code, _, _ := s.run("attach", "p2"); codes <- fmt.Sprintln(code) }
	go wait()
	go attach()
	eventually(t, "it has been started again", func() bool { _, out, _ := s.run("logs", "p2"); return out == "up\nup\n" })
	if len(codes) > 0 {
		t.Errorf("%s before the end", <-codes)
	}
	if code, _, stderr := s.run("stop", "-t", "50", "p2"); code != 0 {
		t.Errorf("stop: %d, %s", code, stderr)
	}
	for range 2 {
		if got := <-codes; got != "4\n" {
			t.Errorf("code %q", got)
		}
	}
}

// TestPlayStopsAllContainers: each by its image's signal, and all within the time that stop says.
func TestPlayStopsAllContainers(t *testing.T) {
	s := newStand(t)
	s.image = "oci:" + testImage(t, func(c *v1.Config) { c.StopSignal = "SIGUSR1" })
	p := s.inBackground(`  terminationGracePeriodSeconds: 600
  containers:
  - {name: a, image: IMAGE, command: [sh, -c, "trap 'echo asked; exit 5' USR1; trap '' TERM; echo up; while :; do sleep 0.02; done"]}
  - {name: b, image: IMAGE, command: [sh, -c, "trap '' USR1; echo up; while :; do sleep 0.02; done"]}
`)
	p.Keep = true
	if err := s.app(nil, &buffer{}, &buffer{}).startMonitor(t.Context(), p, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are up", func() bool { _, out, _ := s.run("logs", "p1"); return strings.Count(out, "up\n") == 2 })
	if code, _, stderr := s.run("stop", "-t", "1", "p1"); code != 0 {
		t.Errorf("stop: %d, %s", code, stderr)
	}
	if _, out, _ := s.run("logs", "p1"); !strings.Contains(out, "[a] asked\n") {
		t.Errorf("log %q", out)
	}
}

// inBackground returns the request of play -d without the network, which a monitor would have for real.
func (s *stand) inBackground(spec string) *runRequest {
	s.t.Helper()
	f := &runFlags{}
	f.NoNetwork, f.LogLimit, f.ShmBytes = true, 1<<20, 64<<20
	f.BootTimeout, f.PullTimeout, f.Detach = time.Minute, time.Minute, true
	a := s.app(nil, &buffer{}, &buffer{})
	a.root, a.socket, a.provider = s.root, s.node.Socket, defaultProvider
	p, err := a.readManifest(s.manifestOf(spec))
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := f.ofPod(a, p)
	if err != nil {
		s.t.Fatal(err)
	}
	return req
}

func TestProbes(t *testing.T) {
	var status, asked atomic.Int32
	status.Store(200)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X") == "1" && r.URL.Path == "/healthz" {
			asked.Add(1)
		}
		w.WriteHeader(int(status.Load()))
	}))
	defer server.Close()
	s := newStand(t)
	s.net.address = "127.0.0.1/8"
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	file := s.manifestOf(`  restartPolicy: Never
  terminationGracePeriodSeconds: 60
  containers:
  - name: a
    image: IMAGE
    command: [sh, -c, "trap 'exit 5' TERM; echo up; while :; do sleep 0.02; done"]
    ports: [{name: web, containerPort: ` + port + `}]
    startupProbe: {tcpSocket: {port: web}, periodSeconds: 1}
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
    livenessProbe: {httpGet: {path: /healthz, port: web, httpHeaders: [{name: X, value: "1"}]}, periodSeconds: 1, failureThreshold: 1}
`)
	done, errs := make(chan int), &buffer{}
	go func() {
		done <- s.app(nil, &buffer{}, errs).Run([]string{"--root", s.root, "--socket", s.node.Socket, "play", file})
	}()
	eventually(t, "the server was asked", func() bool { return asked.Load() > 0 })
	status.Store(503)
	if code := <-done; code != 5 || !strings.Contains(errs.String(), "container a is unwell and is ended: HTTP status 503") {
		t.Errorf("code %d, %s", code, errs.String())
	}
}

func TestPlayedPodInTheBackground(t *testing.T) {
	s := newStand(t)
	req := s.inBackground(`  containers:
  - {name: a, image: IMAGE, command: [sh, -c, "while :; do sleep 0.05; done"]}
  - {name: b, image: IMAGE, command: [sh, -c, "while :; do sleep 0.05; done"], env: [{name: A, value: b}]}
`)
	if err := s.app(nil, &buffer{}, &buffer{}).startMonitor(t.Context(), req, true); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := s.run("exec", "-c", "b", "p1", "true"); code != 0 {
		t.Errorf("exec -c b: %d, %s", code, stderr)
	}
	if code, _, stderr := s.run("exec", "-c", "z", "p1", "true"); code != 125 || !strings.Contains(stderr, `no container "z"`) {
		t.Errorf("exec -c z: %d, %s", code, stderr)
	}
	s.killMonitor("p1")
	if code, _, stderr := s.run("exec", "-c", "b", "p1", "true"); code != 0 {
		t.Errorf("exec after its monitor was killed: %d, %s", code, stderr)
	}
	if _, stdout, stderr := s.run("ps", "--filter", "label=app=x", "--format", "{{.State}}"); stdout != "running\n" {
		t.Errorf("after its monitor was killed: %q, %s", stdout, stderr)
	}
	if code, _, stderr := s.run("rm", "-f", "p1"); code != 0 {
		t.Errorf("rm -f: %d, %s", code, stderr)
	}
}

// TestPlaySizesTheVM: for all limits, and no smaller than usual for containers without.
func TestPlaySizesTheVM(t *testing.T) {
	limit := func(name, cpu, memory string) string {
		return "{name: " + name + ", image: i, resources: {limits: {cpu: " + cpu + ", memory: " + memory + "}}}"
	}
	for _, row := range []struct {
		init, main    string
		vcpus, memory int
	}{
		{"", limit("a", "500m", "64Mi") + ", " + limit("b", "600m", "64Mi"), 2, 128 + guestMemory},
		{limit("i", "3", "1Gi"), limit("a", "500m", "64Mi"), 3, 1024 + guestMemory},
		{"", limit("a", "100m", "64Mi") + ", {name: b, image: i}", 0, 0},
		{"", limit("a", "2", "1Gi") + ", {name: b, image: i}", 2, 1024 + guestMemory},
		{"", "{name: a, image: i, resources: {requests: {cpu: 3, memory: 2Gi}}}", 3, 2048 + guestMemory},
	} {
		req, err := playRequest(t, "  initContainers: ["+row.init+"]\n  containers: ["+row.main+"]\n")
		if err != nil {
			t.Fatal(err)
		}
		if vcpus, memory := req.vmSize(); vcpus != row.vcpus || memory != row.memory {
			t.Errorf("%s, %s: %d CPUs, %d MiB", row.init, row.main, vcpus, memory)
		}
	}
	_, err := playRequest(t, "  initContainers: ["+limit("i", "5m", "1Gi")+"]\n  containers: ["+limit("a", "1", "512Ki")+"]\n")
	for _, want := range []string{"spec.initContainers[0].resources.limits.cpu: 5m: want at least 10m", "spec.containers[0].resources.limits.memory: 512Ki: want at least 1Mi"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestPlayImagesByRelativePath: also those of init containers, for a monitor in another folder.
func TestPlayImagesByRelativePath(t *testing.T) {
	req, err := playRequest(t, "  initContainers: [{name: i, image: 'oci:a'}]\n  containers: [{name: a, image: 'oci:b'}]\n")
	if err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]string{req.Pod.Spec.InitContainers[0].Image: "/a", req.Pod.Spec.Containers[0].Image: "/b"} {
		if !strings.HasPrefix(image, "oci:/") || !strings.HasSuffix(image, want) {
			t.Errorf("image %s", image)
		}
	}
}

func playRequest(t *testing.T, spec string) (*runRequest, error) {
	t.Helper()
	a := &App{Stdin: strings.NewReader("apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: other}\nspec:\n" + spec)}
	p, err := a.readManifest("-")
	if err != nil {
		t.Fatal(err)
	}
	f := &runFlags{}
	f.NoNetwork, f.LogLimit, f.ShmBytes = true, 1<<20, 64<<20
	f.BootTimeout, f.PullTimeout = 1e9, 1e9
	return f.ofPod(a, p)
}

// TestInspectOfAManifest: what docker's names stand for is of the first container; without an owner nothing runs.
func TestInspectOfAManifest(t *testing.T) {
	req, err := playRequest(t, `  securityContext: {runAsUser: 5}
  containers:
  - {name: a, image: i, command: [x], args: [z], resources: {limits: {cpu: 500m, memory: 64Mi}}, securityContext: {readOnlyRootFilesystem: true}, volumeMounts: [{name: v, mountPath: /v}]}
  - {name: b, image: i, resources: {limits: {cpu: 500m, memory: 64Mi}}}
  volumes: [{name: v, emptyDir: {}}]
`)
	if err != nil {
		t.Fatal(err)
	}
	p := &record.Pod{Name: "p", Status: record.Running}
	p.Request, _ = json.Marshal(req)
	i, err := inspect(p)
	if err != nil || i.State.Running || i.State.Status != "orphaned" || i.Config.User != "5" || i.Config.Cmd[0] != "z" || i.Config.Entrypoint[0] != "x" ||
		i.HostConfig.Memory != 64<<20 || i.HostConfig.NanoCpus != 5e8 || !i.HostConfig.ReadonlyRootfs || i.Mounts[0].Destination != "/v" {
		t.Errorf("%+v, %v", i, err)
	}
	p.Owner = procid.Self()
	if i, _ := inspect(p); !i.State.Running || i.State.Status != "running" {
		t.Errorf("with an owner: %+v", i.State)
	}
	if got := req.namespace(); got != "other" {
		t.Errorf("namespace %s", got)
	}
}

// TestProbesFollowRedirects: within the host. One to another host is a success.
func TestProbesFollowRedirects(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/within":
			http.Redirect(w, r, "/broken", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	r := &runner{record: &record.Pod{IPs: []string{"127.0.0.1"}}}
	for path, want := range map[string]string{"/within": "HTTP status 500", "/away": "<nil>", "/loop": "more than 10 times"} {
		get := &corev1.HTTPGetAction{Path: path, Port: intstr.Parse(portOf(server.Listener.Addr()))}
		if err := r.askHTTP(t.Context(), &podContainer{}, get); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

func TestUserOfAContainer(t *testing.T) {
	file := strings.NewReader("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  securityContext: {runAsUser: 5}\n  containers: [{name: c, image: i, securityContext: {runAsGroup: 6}}]\n")
	p, err := (&App{Stdin: file}).readManifest("-")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := playUser(p, p.Spec.Containers[0]); got != "5:6" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	args := arguments(v1.Config{Entrypoint: []string{"entry"}, Cmd: []string{"cmd"}}, nil, manifest.ExpandAll([]string{"$(A)"}, []string{"A=1"}))
	if strings.Join(args, " ") != "entry 1" {
		t.Errorf("args %v", args)
	}
}
