// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/tier"
)

var basic = []scenario{
	{name: "CreateSimplePod", vms: 1, play: simplePod},
	{name: "DeleteSimplePod", vms: 1, variant: true, play: deletedPod},
	{name: "CreatePodWithConfigMap", vms: 1, play: podWithConfigMap},
	{name: "CreatePodWithSecret", vms: 1, variant: true, play: podWithSecret},
	{name: "CreatePeerPodContainerWithExternalIPAccess", vms: 1, variant: true, play: podReachesOutside},
	{name: "CreatePeerPodWithJob", vms: 1, play: job},
	{name: "CreatePeerPodAndCheck", vms: 1, variant: true, play: configuredImage},
	{name: "NginxDeployment", vms: 3, play: deployment},
	{name: "PodToServiceCommunication", vms: 2, play: service},
	{name: "PodsMTLSCommunication", vms: 2, variant: true, play: mutualTLS},
	{name: "PodWithCPUMemLimitsAndRequests", vms: 1, play: limits},
}

const serve = "echo started; exec podtool serve :8080"

const served = `readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 30}`

func simplePod(t *testing.T, s *suite) {
	s.start(t, s.pod("simple", serve).container(served))
	t.Run("OwnVM", func(t *testing.T) {
		node := s.Kubectl(t, "get", "node", s.jsonpath(t, "pod/simple", "{.spec.nodeName}"), "-o", "jsonpath={.status.nodeInfo.bootID}")
		if vm := s.bootID(t, "simple"); vm == node || vm == "" {
			t.Errorf("the pod's kernel was booted as %q, the node's as %q", vm, node)
		}
		s.instanceOf(t, "simple")
	})
	t.Run("Logs", func(t *testing.T) { want(t, "log", s.logs(t, "simple"), "started\n") })
	t.Run("Exec", func(t *testing.T) { execs(t, s) })
	t.Run("PortForward", func(t *testing.T) { want(t, "answer", s.forwarded(t, "simple"), "hello from simple") })
}

// bootID is another one for each boot of a kernel.
func (s *suite) bootID(t *testing.T, pod string) string {
	t.Helper()
	return strings.TrimSpace(s.exec(t, pod, "cat", "/proc/sys/kernel/random/boot_id"))
}

func execs(t *testing.T, s *suite) {
	want(t, "host name", s.exec(t, "simple", "hostname"), "simple\n")
	_, err := s.TryKubectl(s.in([]string{"exec", "simple", "--", "sh", "-c", "exit 7"})...)
	want(t, "exit code", errText(err), "exit code 7")
	cmd := s.Command(s.in([]string{"exec", "-i", "simple", "--", "md5sum"})...)
	cmd.Stdin = strings.NewReader(strings.Repeat("0123456789abcdef", 1<<14))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	want(t, "sum of the input", string(out), "9e1c7bb92fe4745e4ace7f83ae751f10")
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`)

// forwarded asks a pod at port 8080 through kubectl port-forward.
func (s *suite) forwarded(t *testing.T, pod string) string {
	t.Helper()
	cmd := s.Command(s.in([]string{"port-forward", "pod/" + pod, ":8080"})...)
	address := firstLine(t, cmd, forwarding)
	defer finish(cmd)
	client := &http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	r, err := client.Get("http://" + address + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// firstLine starts a command and returns what the pattern finds in its first
// line of output.
func firstLine(t *testing.T, cmd *exec.Cmd, pattern *regexp.Regexp) string {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 4096)
	n, err := stdout.Read(line)
	found := pattern.FindSubmatch(line[:n])
	if found == nil {
		finish(cmd)
		t.Fatalf("%v: %q, %v", cmd.Args, line[:n], err)
	}
	go io.Copy(io.Discard, stdout)
	return string(found[1])
}

func deletedPod(t *testing.T, s *suite) {
	s.start(t, s.pod("deleted", "sleep infinity"))
	id := s.instanceOf(t, "deleted")
	s.delete(t, "deleted")
	s.gone(t, id)
}

// awaitBlue prints the colour, and ends when it has changed.
const awaitBlue = `echo "$(cat /volume/colour) at first"; until grep -q blue /volume/colour; do sleep 0.2; done; echo changed`

// awaitLine returns when a pod has printed a line: that it runs does not say that it has.
func (s *suite) awaitLine(t *testing.T, pod, line string) {
	t.Helper()
	cmd := s.Command(s.in([]string{"logs", "--follow", pod})...)
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer finish(cmd)
	late := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer late.Stop()
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == line {
			return
		}
	}
	t.Fatalf("pod %s has not printed %q; its log: %s", pod, line, clip(s.logs(t, pod)))
}

func podWithConfigMap(t *testing.T, s *suite) {
	p := s.pod("configmap", `echo "variable $COLOUR, file $(cat /one)"; `+awaitBlue).
		container(`{env: [{name: COLOUR, valueFrom: {configMapKeyRef: {name: configmap, key: colour}}}],
			volumeMounts: [{name: v, mountPath: /volume}, {name: v, mountPath: /one, subPath: colour}]}`).
		with(`volumes: [{name: v, configMap: {name: configmap}}]`)
	s.start(t, p, configMap("configmap", map[string]string{"colour": "green"}))
	s.awaitLine(t, "configmap", "green at first")
	s.apply(t, configMap("configmap", map[string]string{"colour": "blue"}))
	s.succeeded(t, "configmap")
	want(t, "log", s.logs(t, "configmap"), "variable green, file green\ngreen at first\nchanged")
}

func podWithSecret(t *testing.T, s *suite) {
	p := s.pod("secret", `echo "variable $COLOUR, mode $(stat -Lc %a /volume/colour)"; `+awaitBlue).
		container(`{env: [{name: COLOUR, valueFrom: {secretKeyRef: {name: secret, key: colour}}}],
			volumeMounts: [{name: v, mountPath: /volume, readOnly: true}]}`).
		with(`volumes: [{name: v, secret: {secretName: secret, defaultMode: 0400}}]`)
	s.start(t, p, secret("secret", map[string]string{"colour": "green"}))
	s.awaitLine(t, "secret", "green at first")
	s.apply(t, secret("secret", map[string]string{"colour": "blue"}))
	s.succeeded(t, "secret")
	want(t, "log", s.logs(t, "secret"), "variable green, mode 400\ngreen at first\nchanged")
}

func (s *suite) succeeded(t *testing.T, name string) {
	t.Helper()
	if phase := s.ended(t, name); phase != "Succeeded" {
		t.Errorf("pod %s: %s; its log: %s", name, phase, clip(s.logs(t, name)))
	}
}

func podReachesOutside(t *testing.T, s *suite) {
	want(t, "answer", s.play(t, s.pod("outside", "podtool get "+s.outside)), "200 OK")
}

func job(t *testing.T, s *suite) {
	p := s.pod("job", "seq 3 | tr '\\n' ' '")
	s.create(t, object{
		"apiVersion": "batch/v1", "kind": "Job", "metadata": object{"name": "job"},
		"spec": object{"template": p.template(), "backoffLimit": 0},
	})
	s.kubectl(t, "wait", "--for=condition=Complete", "job/job", s.timeout())
	want(t, "log", s.logs(t, "job/job"), "1 2 3 ")
}

func configuredImage(t *testing.T, s *suite) {
	const variable = `env: [{name: ISPRODUCTION, value: "true"}]`
	p := s.pod("configured", "").image(s.images.configured)
	script := p.another("deployment", `echo "ISPRODUCTION=$ISPRODUCTION"`, variable)
	both := p.another("both", "", variable)
	both["image"] = s.images.configured
	delete(both, "command")
	p.spec["containers"] = []any{p.main, script, both}
	s.create(t, p)
	s.succeeded(t, "configured")
	for _, c := range []struct{ name, container, want string }{
		{"UserLogs", "main", "user app "},
		{"WorkDirLogs", "main", " in /home/app,"},
		{"EnvVariableLogsWithImageOnly", "main", "ISPRODUCTION=false\n"},
		{"EnvVariableLogsWithDeploymentOnly", "deployment", "ISPRODUCTION=true\n"},
		{"EnvVariableLogsWithImageAndDeployment", "both", "ISPRODUCTION=true\n"},
	} {
		t.Run(c.name, func(t *testing.T) { want(t, "log", s.logs(t, "configured", "-c", c.container), c.want) })
	}
}

// deployment has three replicas, in `make test` two, and goes over to another
// version with never more than one of them missing.
func deployment(t *testing.T, s *suite) {
	replicas := 3
	if s.own != nil && !tier.All() {
		replicas = 2
	}
	p := s.pod("nginx", serve).container(served).container(`env: [{name: VERSION, value: "1"}]`).with("restartPolicy: Always")
	d := object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "nginx"},
		"spec": object{
			"replicas": replicas, "selector": object{"matchLabels": p.meta["labels"]}, "template": p.template(),
			"strategy":                object{"rollingUpdate": object{"maxSurge": 0, "maxUnavailable": 1}},
			"progressDeadlineSeconds": int(patience / time.Second),
		},
	}
	s.create(t, d)
	s.kubectl(t, "rollout", "status", "deployment/nginx", s.timeout())
	before := s.podsOf(t, "nginx")
	kernels := map[string]bool{}
	for _, pod := range before {
		kernels[s.bootID(t, pod)] = true
	}
	if len(before) != replicas || len(kernels) != replicas {
		t.Fatalf("pods %v have %d kernels", before, len(kernels))
	}
	s.kubectl(t, "set", "env", "deployment/nginx", "VERSION=2")
	s.kubectl(t, "rollout", "status", "deployment/nginx", s.timeout())
	after := s.podsOf(t, "nginx")
	for _, pod := range after {
		want(t, "version", s.exec(t, pod, "sh", "-c", "echo $VERSION"), "2\n")
		if slices.Contains(before, pod) {
			t.Errorf("pod %s is still there", pod)
		}
	}
	if len(after) != replicas {
		t.Errorf("pods %v after the update", after)
	}
}

// podsOf are those with a label that are not being deleted.
func (s *suite) podsOf(t *testing.T, app string) (names []string) {
	t.Helper()
	out := s.kubectl(t, "get", "pods", "-l", "app="+app, "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{"\n"}{end}`)
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 1 {
			names = append(names, f[0])
		}
	}
	return names
}

func serviceOf(name string, port int) object {
	return object{
		"apiVersion": "v1", "kind": "Service", "metadata": object{"name": name},
		"spec": object{"selector": object{"app": name}, "ports": []any{object{"port": port, "targetPort": 8080}}},
	}
}

func service(t *testing.T, s *suite) {
	s.start(t, s.pod("web", serve).container(served), serviceOf("web", 80))
	// Rules of a Service may come after its pods.
	const ask = "until podtool get http://%s/; do sleep 0.2; done\n"
	names := []string{"web", "web." + s.namespace + ".svc", s.jsonpath(t, "service/web", "{.spec.clusterIP}"), s.jsonpath(t, "pod/web", "{.status.podIP}") + ":8080"}
	script := ""
	for _, name := range names {
		script += fmt.Sprintf(ask, name)
	}
	if n := strings.Count(s.play(t, s.pod("client", script)), "hello from web"); n != len(names) {
		t.Errorf("%d of %d answers", n, len(names))
	}
}

// limits of a container are those of its part of the VM.
func limits(t *testing.T, s *suite) {
	p := s.pod("limits", `nproc; grep MemTotal /proc/meminfo; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; true`).
		container(`resources: {requests: {cpu: 500m, memory: 128Mi}, limits: {cpu: "2", memory: 384Mi}}`)
	log := s.play(t, p)
	cpus, mib := sizeIn(t, log)
	if cpus < 2 || mib < 300 {
		t.Errorf("the VM has %d CPUs and %d MiB", cpus, mib)
	}
	want(t, "limit of the container", log, fmt.Sprintln(384<<20))
}
