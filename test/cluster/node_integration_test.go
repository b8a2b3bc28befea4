// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/tier"
)

// shim stands for one of another runtime: a RuntimeClass leads to it.
const shim = "/usr/bin/containerd-shim-runc-v2"

// pods are one that serves, with all that is mounted, and one on the other node
// that asks.
const pods = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: other}
handler: other
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: green}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {value: opensesame}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, clusterIP: 10.96.0.80, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  nodeSelector: {tests: first}
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: outrigger.test/tools:1
    imagePullPolicy: Never
    command: [sh, -c, 'echo started; exec podtool serve :8080']
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
    resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 200m, memory: 64Mi}}
    volumeMounts:
    - {name: settings, mountPath: /etc/settings}
    - {name: password, mountPath: /etc/password}
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: password, secret: {secretName: password}}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  nodeSelector: {tests: second}
  runtimeClassName: other
  imagePullSecrets: [{name: puller}]
  terminationGracePeriodSeconds: 1
  containers:
  - name: client
    image: registry.example/tools:1
    imagePullPolicy: Always
    command: [sleep, infinity]
`

func TestNode(t *testing.T) {
	tier.OnlyAll(t) // whatever starts a cluster sees it fail
	started := time.Now()
	c := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	var dir string
	t.Run("cluster", func(t *testing.T) {
		n := cluster.StartNode(t, c, cluster.NodeOptions{Labels: map[string]string{"tests": "first"}})
		dir = n.Dir
		t.Logf("node Ready after %s", time.Since(started).Round(time.Millisecond))
		r := &cluster.Registry{User: "puller", Password: "opensesame"}
		r.Start(t, c)
		r.Push(t, "tools:1", cluster.Tools(t).Image)
		second := cluster.StartNode(t, c, cluster.NodeOptions{
			Labels:   map[string]string{"tests": "second"},
			Runtimes: []cluster.Runtime{{Handler: "other", Shim: shim}},
			Mirrors:  map[string]string{"registry.example": r.URL()},
			Kubelet:  map[string]any{"maxPods": 7},
		})
		c.Kubectl(t, "create", "secret", "docker-registry", "puller", "--docker-server=registry.example",
			"--docker-username="+r.User, "--docker-password="+r.Password)
		c.Apply(t, pods)
		c.Kubectl(t, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=180s")
		t.Logf("pods Ready after %s", time.Since(started).Round(time.Millisecond))
		node(t, c, second)
	})
	nothingIsLeft(t, dir)
}

// node is what pods can do; n is the second.
func node(t *testing.T, c *cluster.ControlPlane, n *cluster.Node) {
	exec := func(pod string, command ...string) string {
		t.Helper()
		return c.Kubectl(t, append([]string{"exec", pod, "--"}, command...)...)
	}
	want := func(what, got, part string) {
		t.Helper()
		if !strings.Contains(got, part) {
			t.Errorf("%s: %q; want %q in it", what, got, part)
		}
	}
	want("maximum of pods", c.Kubectl(t, "get", "node", n.Name, "-o", "jsonpath={.status.capacity.pods}"), "7")
	want("shim", strings.Join(processes(t), "\n"), "containerd-shim-other-v2 -namespace")
	want("logs", c.Kubectl(t, "logs", "web"), "started")
	want("exec", exec("web", "hostname"), "web")
	want("ConfigMap", exec("web", "cat", "/etc/settings/colour"), "green")
	want("Secret", exec("web", "cat", "/etc/password/value"), "opensesame")
	want("Service", exec("client", "podtool", "get", "http://10.96.0.80/"), "hello from web")
	want("name of a Service", exec("client", "podtool", "get", "http://web.default.svc.cluster.local/"), "hello from web")
	want("short name", exec("client", "podtool", "get", "http://web/"), "hello from web")
	want("token", exec("client", "podtool", "get", "https://10.96.0.1/version"), "200 OK")
	want("token without a role", exec("client", "podtool", "get", "https://10.96.0.1/api/v1/namespaces"), "403 Forbidden")
	want("port-forward", forwarded(t, c), "hello from web")
	// The test itself reaches pods and Services, as the API server reaches
	// webhooks.
	want("Service from outside", httpGet(t, "http://10.96.0.80/"), "hello from web")

	c.Kubectl(t, "delete", "pod", "--all", "--timeout=120s")
	if out := c.Kubectl(t, "get", "pods", "-o", "name"); out != "" {
		t.Errorf("pods after deletion: %s", out)
	}
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`)

// forwarded asks the pod web through kubectl port-forward.
func forwarded(t *testing.T, c *cluster.ControlPlane) string {
	t.Helper()
	cmd := c.Command("port-forward", "pod/web", ":8080")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	found := forwarding.FindStringSubmatch(line)
	if found == nil {
		t.Fatalf("kubectl port-forward: %q, %v", line, err)
	}
	return httpGet(t, "http://"+found[1]+"/")
}

func httpGet(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// nothingIsLeft looks at what a node leaves outside of its namespaces, if
// anything, when it has ended.
func nothingIsLeft(t *testing.T, dir string) {
	t.Helper()
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/outrigger-" + filepath.Base(dir)); len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the node's folder is left: %v", err)
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Name != "lo" && l.Name != "ornodes" {
			t.Errorf("interface %s is left", l.Name)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) || strings.Contains(line, "kubelet") {
			t.Errorf("mount is left: %s", line)
		}
	}
	for _, p := range processes(t) {
		if strings.Contains(p, "containerd") || strings.Contains(p, "kubelet") || strings.Contains(p, "podtool") || strings.Contains(p, "pause") {
			t.Errorf("process is left: %s", p)
		}
	}
}

// processes are the command lines of those in the test's pid namespace.
func processes(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range paths {
		line, _ := os.ReadFile(p)
		lines = append(lines, fmt.Sprintf("%s %s", filepath.Base(filepath.Dir(p)), strings.ReplaceAll(string(line), "\x00", " ")))
	}
	return lines
}
