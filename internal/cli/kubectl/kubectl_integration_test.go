// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kubectl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/outrigger/outrigger/internal/cli/demoimage"
	"github.com/outrigger/outrigger/internal/cli/doctor"
	"github.com/outrigger/outrigger/provider/fake"
	realcluster "github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

func TestMain(m *testing.M) { testns.Main(m) }

// TestOnARealAPIServer: an installation without nodes, from before it is made.
func TestOnARealAPIServer(t *testing.T) {
	cp := realcluster.StartControlPlane(t, realcluster.ControlPlaneOptions{})
	u := &real{t, cp.Kubeconfig}
	cp.Apply(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1", "labels": {"`+workerLabel+`": ""}}}`)

	before := u.check("--pre")
	u.result(before, "rights", doctor.OK)
	u.result(before, "crd", doctor.OK)
	u.result(before, "nodes", doctor.Error) // it has no kubelet
	u.result(u.check(), "crd", doctor.Error)
	t.Run("status", func(t *testing.T) { waitsForReal(t, cp, &real{t, cp.Kubeconfig}) })

	cp.Kubectl(t, "apply", "-k", filepath.Join(stand.Root(), "deploy", "overlays", "qemu"))
	cp.Kubectl(t, "wait", "--for=condition=Established", "crd/"+crdName)
	after := u.check()
	for name, want := range map[string]doctor.Status{
		"crd": doctor.OK, "rights": doctor.OK, "rbac": doctor.OK, "settings": doctor.OK, "runtimeclass": doctor.OK,
		"adaptor": doctor.Error, "controller": doctor.Error, "webhook-ca": doctor.Error, "capacity": doctor.Error, "peerpods": doctor.OK,
	} {
		u.result(after, name, want)
	}
	t.Run("pod", func(t *testing.T) { describeReal(t, cp, &real{t, cp.Kubeconfig}) })
	t.Run("ui", func(t *testing.T) { lookAtReal(t, cp) })
	t.Run("somebody without rights", func(t *testing.T) {
		nobody := &real{t, cp.NewUser(t, "mallory").Kubeconfig}
		if code, _, errs := nobody.run("top"); code != 1 {
			t.Errorf("exit code %d", code)
		} else {
			wants(t, errs, "forbidden", "ask whoever administers")
		}
		nobody.result(nobody.check(), "rights", doctor.Warning)
		s := look(t, nobody.kubeconfig, "", 200, 20)
		s.until(`pods: pods is forbidden: User "mallory" cannot list resource "pods"`, "ask whoever")
	})
}

// lookAtReal has the UI show what comes, changes and goes, and an outage.
func lookAtReal(t *testing.T, cp *realcluster.ControlPlane) {
	cp.Apply(t, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "look"}}`)
	s := look(t, cp.Kubeconfig, "look", 160, 40)
	s.until("nothing here")
	for _, name := range []string{"web", "api"} {
		cp.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "namespace": "look"},
			"spec": {"containers": [{"name": "main", "image": "x", "env": [{"name": "A", "value": "open-sesame"}]}]}}`, name))
		cp.Apply(t, fmt.Sprintf(`{"apiVersion": "confidentialcontainers.org/v1alpha1", "kind": "PeerPod", "metadata": {"name": "%s-1", "namespace": "look"},
			"spec": {"cloudProvider": "fake", "instanceID": "i-%[1]s", "sandboxID": "s-%[1]s", "podName": %[1]q}}`, name))
		s.until(name, "i-"+name)
	}
	s.press("G", "y")
	wantsNot(t, s.until("YAML of web", "image: x"), "sesame")
	s.press("esc", "enter")
	s.until("pod of look/web", "PeerPod web-1", "Instance i-web")
	cp.Kubectl(t, "delete", "peerpod", "-n", "look", "web-1", "--wait=false")
	cp.Kubectl(t, "delete", "pod", "-n", "look", "web", "--now", "--wait=false")
	s.until("it is gone")
	s.press("esc")
	wantsNot(t, s.until("pods [1]", "api"), "web")
	cp.Kill()
	s.until("api", "as last read", "the API server does not answer")
	cp.Start(t)
	s.until("api", "Enter deeper")
	cp.Kubectl(t, "delete", "pod", "-n", "look", "api", "--now", "--wait=false")
	s.until("pods [0]")
}

// waitsForReal has status wait for a Deployment, while pods in VMs are not installed.
func waitsForReal(t *testing.T, cp *realcluster.ControlPlane, u *real) {
	if code, out, errs := u.run("status"); code != 1 || !strings.Contains(out, "nothing of Outrigger is installed") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	cp.Apply(t, `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "manager", "namespace": "default"},
		"spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
		"spec": {"containers": [{"name": "manager", "image": "registry.example/capi-manager:v0.1.0"}]}}}}`)
	type outcome struct {
		code      int
		out, errs string
	}
	waited := make(chan outcome, 1)
	said := &firstWrite{done: make(chan struct{})}
	go func() {
		var out bytes.Buffer
		code := (&App{Stdout: &out, Stderr: said, Getenv: os.Getenv, Now: time.Now}).Run([]string{"--kubeconfig", u.kubeconfig, "status", "--wait", "--timeout=1m"})
		waited <- outcome{code, out.String(), said.text.String()}
	}()
	<-said.done // it has seen that it is not ready
	cp.Kubectl(t, "wait", "--for=jsonpath={.status.replicas}=2", "deployment/manager", "--timeout=60s")
	for _, pod := range strings.Fields(cp.Kubectl(t, "get", "pods", "-l", "a=b", "-o", "name")) { // there is no kubelet
		cp.Kubectl(t, "patch", pod, "--subresource=status", "--type=merge", "-p", `{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}`)
	}
	got := <-waited
	t.Logf("%+v", got)
	if got.code != 0 {
		t.Errorf("exit code %d", got.code)
	}
	wants(t, got.errs, "waiting for capi-manager: ")
	wants(t, got.out, "manager    Deployment  default    2/2    v0.1.0")
	cp.Kubectl(t, "delete", "deployment", "manager")
}

// firstWrite closes done at the first write.
type firstWrite struct {
	text bytes.Buffer
	once sync.Once
	done chan struct{}
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.once.Do(func() { close(f.done) })
	return f.text.Write(p)
}

// TestConnectivityOnACluster: all ways between pods whose VMs are guests of a cloud. The node's network plugin is
// a bridge, which enforces no policies and has no IPv6.
func TestConnectivityOnACluster(t *testing.T) {
	testns.RequireRoot(t)
	cp := realcluster.StartControlPlane(t, realcluster.ControlPlaneOptions{})
	registry := &realcluster.Registry{}
	registry.Start(t, cp)
	node := realcluster.StartNode(t, cp, realcluster.OutriggerNode(t, realcluster.NodeOptions{Mirrors: map[string]string{registry.Host: registry.URL()}}))
	realcluster.Install(t, cp, node, realcluster.StartCloud(t, fake.Options{}).Outrigger(realcluster.OutriggerOptions{}))
	image, err := demoimage.Image(demoimage.Options{Extra: map[string]string{"agent-relay": stand.Binary(t, "agent-relay")}})
	if err != nil {
		t.Fatal(err)
	}
	u, pushed := &real{t, cp.Kubeconfig}, registry.Push(t, "relay:1", image)
	code, out, errs := u.run("connectivity", "test", "-o", "json", "--image", pushed, "--outside", registry.Host, "--skip", "policy")
	var checks []NetCheck
	if err := json.Unmarshal([]byte(out), &checks); err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		want := passed
		if strings.Contains(c.Name, "IPv6") || strings.Contains(c.Detail, "--skip") {
			want = skipped
		}
		if c.Outcome != want {
			t.Errorf("%+v, want %s", c, want)
		}
	}
	if code != 0 || errs != "" || len(checks) != 16 {
		t.Errorf("exit code %d, %d checks: %s", code, len(checks), errs)
	}
	t.Run("policy", func(t *testing.T) {
		tier.OnlyAll(t) // two checks wait for what does not come
		code, out, _ := (&real{t, cp.Kubeconfig}).run("connectivity", "test", "--image", pushed, "--skip", "pod,service,dns,mtu,throughput")
		wants(t, out, "✗ NetworkPolicy keeps a pod in a VM out", "✗ NetworkPolicy keeps an ordinary pod out", "can still be reached", "✓ without it the server is back")
		if code != 1 {
			t.Errorf("exit code %d", code)
		}
	})
	if left := cp.Kubectl(t, "get", "namespaces,peerpods", "-A", "-o", "name"); strings.Contains(left, "connectivity") || strings.Contains(left, "peerpod") {
		t.Errorf("left: %s", left)
	}
}

// describeReal looks at a PeerPod as the API server keeps it.
func describeReal(t *testing.T, cp *realcluster.ControlPlane, u *real) {
	cp.Apply(t, `{"apiVersion": "confidentialcontainers.org/v1alpha1", "kind": "PeerPod", "metadata": {"name": "web-abc", "namespace": "default"},
		"spec": {"cloudProvider": "qemu", "instanceID": "i-web", "sandboxID": "s-web", "nodeName": "node1", "podName": "web", "podUID": "u1"}}`)
	_, out, errs := u.run("describe", "pod", "web")
	wants(t, out+errs, "PodGone", "PeerPod web-abc", "Instance i-web")
	code, out, errs := u.run("logs", "web", "--console")
	if code != 1 {
		t.Errorf("logs: exit code %d", code)
	}
	wants(t, out+errs, "qemu")
	_, out, errs = u.run("top")
	wants(t, out+errs, "node1  1    -")
	_, out, errs = u.run("gc", "--dry-run", "--older-than=0s")
	wants(t, out+errs, "default/web-abc", "its pod is gone", "processes of their nodes")

	cp.Kubectl(t, "create", "secret", "generic", "other", "-n", SystemNamespace, "--from-literal=key=very-secret-value")
	cp.Kubectl(t, "annotate", "node", "node1", "note=very-secret-value")
	cp.Kubectl(t, "label", "node", "node1", "note=very-secret-value")
	code, out, errs = u.run("support-bundle", "-f", "-")
	if code != 0 {
		t.Fatal(errs)
	}
	files := unpack(t, []byte(out))
	wants(t, files["peerpods.json"], "i-web")
	wants(t, files["nodes.json"], removed)
	for name, text := range files {
		wantsNot(t, name+"\n"+text, "very-secret-value")
	}
}

// real is somebody at a real API server.
type real struct {
	t          *testing.T
	kubeconfig string
}

func (u *real) run(args ...string) (int, string, string) {
	var out, errs bytes.Buffer
	code := (&App{Stdout: &out, Stderr: &errs, Getenv: os.Getenv, Now: time.Now}).Run(append([]string{"--kubeconfig", u.kubeconfig}, args...))
	if !utf8.Valid(out.Bytes()) {
		return code, out.String(), errs.String() // a bundle
	}
	u.t.Logf("kubectl outrigger %s: exit code %d\n%.3000s%s", strings.Join(args, " "), code, &out, &errs)
	return code, out.String(), errs.String()
}

func (u *real) check(args ...string) doctor.Report {
	u.t.Helper()
	_, out, errs := u.run(append([]string{"check", "-o", "json"}, args...)...)
	var report doctor.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		u.t.Fatalf("%v: %s%s", err, out, errs)
	}
	return report
}

func (u *real) result(report doctor.Report, name string, want doctor.Status) {
	u.t.Helper()
	for _, r := range report.Results {
		if r.Name == name {
			if r.Status != want {
				u.t.Errorf("%s: %+v, want %s", name, r, want)
			}
			return
		}
	}
	u.t.Errorf("no result %s in %+v", name, report)
}

// TestMigrateOnARealAPIServer: objects as manifests of the three projects make them, and an account that may only read.
func TestMigrateOnARealAPIServer(t *testing.T) {
	cp := realcluster.StartControlPlane(t, realcluster.ControlPlaneOptions{})
	cp.Apply(t, realUpstream)
	cp.Kubectl(t, "wait", "--for=condition=Established", "crd/dockerclusters."+capiInfrastructure, "crd/infrastructures.config.openshift.io",
		"crd/clusterversions.config.openshift.io", "crd/clusteroperators.config.openshift.io")
	cp.Apply(t, realUpstreamObjects)
	reader := cp.NewUser(t, "reader")
	cp.Apply(t, `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]}`)
	cp.Kubectl(t, "create", "clusterrolebinding", "reader", "--clusterrole=reader", "--user=reader")
	u := &real{t, reader.Kubeconfig}
	for from, says := range map[string][]string{
		"cloud-api-adaptor": {"provider aws", "PODVM_LAUNCHTEMPLATE_NAME", "of no Helm release", "--kustomize UPSTREAM/src/cloud-api-adaptor/install/overlays/aws"},
		"cccmo":             {"ccm-operator diff --platform aws --infrastructure-name shop-x7", "release 4.20.1"},
		"capd":              {"cluster default/one: its containers are not taken over", "clusterctl delete --infrastructure docker"},
	} {
		code, out, errs := u.run("migrate", "--from", from)
		if want := map[string]int{"cloud-api-adaptor": 2}[from]; code != want {
			t.Errorf("%s: exit code %d, want %d\n%s", from, code, want, errs)
		}
		wants(t, out, says...)
	}
}

// realCRD is a definition without a schema.
const realCRD = `
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: PLURAL.GROUP GROUPED}, spec: {group: GROUP, scope: SCOPE, names: {plural: PLURAL, kind: KIND},
  versions: [{name: VERSION, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`

func definitionOf(group, version, plural, kind, scope string) string {
	grouped := ""
	if strings.HasSuffix(group, ".openshift.io") { // the API server wants to know that a protected name is approved
		grouped = ", annotations: {api-approved.kubernetes.io: unapproved}"
	}
	return strings.NewReplacer("GROUPED", grouped, "GROUP", group, "VERSION", version, "PLURAL", plural, "KIND", kind, "SCOPE", scope).Replace(realCRD)
}

var realUpstream = `{apiVersion: v1, kind: Namespace, metadata: {name: confidential-containers-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: openshift-cloud-controller-manager-operator}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: openshift-cloud-controller-manager}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: capd-system}}` +
	definitionOf(capiInfrastructure, "v1beta1", "dockerclusters", "DockerCluster", "Namespaced") +
	definitionOf("config.openshift.io", "v1", "infrastructures", "Infrastructure", "Cluster") +
	definitionOf("config.openshift.io", "v1", "clusterversions", "ClusterVersion", "Cluster") +
	definitionOf("config.openshift.io", "v1", "clusteroperators", "ClusterOperator", "Cluster")

func realWorkload(kind, namespace, name, label string) string {
	more := ""
	if kind == "Deployment" {
		more = "replicas: 1, "
	}
	return `
---
{apiVersion: apps/v1, kind: ` + kind + `, metadata: {namespace: ` + namespace + `, name: ` + name + `, labels: {` + label + `}}, spec: {` + more + `selector: {matchLabels: {app: ` + name + `}},
  template: {metadata: {labels: {app: ` + name + `}}, spec: {containers: [{name: c, image: example.com/x, command: [/usr/local/bin/entrypoint.sh]}]}}}}`
}

var realUpstreamObjects = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: confidential-containers-system, name: peer-pods-cm}, data: {CLOUD_PROVIDER: aws, PODVM_LAUNCHTEMPLATE_NAME: kata, AWS_REGION: eu-west-1}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: openshift-cloud-controller-manager-operator, name: cloud-controller-manager-images}, data: {images.json: "{}"}}
---
{apiVersion: config.openshift.io/v1, kind: Infrastructure, metadata: {name: cluster}, status: {infrastructureName: shop-x7, platformStatus: {type: AWS}}}
---
{apiVersion: config.openshift.io/v1, kind: ClusterVersion, metadata: {name: version}, status: {desired: {version: 4.20.1}}}
---
{apiVersion: config.openshift.io/v1, kind: ClusterOperator, metadata: {name: cloud-controller-manager}}
---
{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerCluster, metadata: {namespace: default, name: one}}` +
	realWorkload("DaemonSet", "confidential-containers-system", "cloud-api-adaptor-daemonset", "app: cloud-api-adaptor") +
	realWorkload("Deployment", "openshift-cloud-controller-manager-operator", "cluster-cloud-controller-manager-operator", "k8s-app: cloud-manager-operator") +
	realWorkload("Deployment", "openshift-cloud-controller-manager", "aws-cloud-controller-manager", "app: ccm") +
	realWorkload("Deployment", "capd-system", "capd-controller-manager", "cluster.x-k8s.io/provider: infrastructure-docker")
