// SPDX-License-Identifier: Apache-2.0

//go:build integration

package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientrest "k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/deployed"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// wait bounds what a test waits for; it is ten times what that takes.
const wait = "5m"

// manifests joins objects for kubectl, without kinds that the server lacks.
func manifests(t *testing.T, all []*unstructured.Unstructured) string {
	t.Helper()
	var text strings.Builder
	for _, o := range all {
		if slices.Contains(foreign[1:], o.GetKind()) {
			continue
		}
		data, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "---\n%s\n", data)
	}
	return text.String()
}

// TestServerTakesEverything asks a real API server, which checks what no type
// says. What belongs to the Prometheus operator and to cert-manager is left out.
func TestServerTakesEverything(t *testing.T) {
	all := renderings(t)
	renders := make([][]byte, len(all))
	for i, r := range all {
		renders[i] = r.render(t) // before the cluster: rendering may be skipped
	}
	c := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	c.Kubectl(t, "create", "namespace", namespace)
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = manifests(t, parse(t, renders[i]))
	}
	// All at once: each kubectl reads what kinds there are. Alone only to find which it was.
	if dryRun(c, strings.Join(texts, "")) != nil {
		for i, r := range all {
			t.Run(r.name, func(t *testing.T) {
				if err := dryRun(c, texts[i]); err != nil {
					t.Error(err)
				}
			})
		}
		if !t.Failed() {
			t.Error("the server takes each installation, and not all of them one after the other")
		}
	}
	wrong := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x","namespace":"default"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"c"}}}}}`
	if dryRun(c, wrong) == nil {
		t.Error("the server takes anything, so this test cannot fail")
	}
}

func dryRun(c *cluster.ControlPlane, manifests string) error {
	cmd := c.Command("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
	cmd.Stdin = strings.NewReader(manifests)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// TestOverlayRuns applies the overlay qemu, except for a few folders, to a cluster whose
// node has the images of `make image` and `make image-qemu`: every container starts and
// gets ready with the permissions, mounts and settings of the manifests.
func TestOverlayRuns(t *testing.T) {
	deployed.RequirePodVM(t)
	render := overlay(t, "qemu")
	c := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	node := cluster.StartNode(t, c, cluster.NodeOptions{
		Labels:   map[string]string{"node.kubernetes.io/worker": ""},
		Runtimes: []cluster.Runtime{deployed.Shim(t)},
		Images:   deployed.Images(t, append(deployed.Daemons, "provider-qemu")...),
	})
	in := func(args ...string) string { return c.Kubectl(t, append([]string{"-n", namespace}, args...)...) }
	t.Cleanup(func() {
		if t.Failed() {
			describe(t, c)
		}
	})
	c.Apply(t, deployed.OwnFolders(string(render), node))
	in("rollout", "status", "deployment/peerpod-ctrl", "--timeout="+wait) // its pod may not be there yet
	in("wait", "--for=condition=Ready", "pods", "--all", "--timeout="+wait)
	t.Run("the node advertises VMs", func(t *testing.T) {
		c.Kubectl(t, "wait", "node", "--all", `--for=jsonpath={.status.allocatable.kata\.peerpods\.io/vm}=10`, "--timeout="+wait)
	})
	t.Run("the webhook sizes pods", func(t *testing.T) { sized(t, c) })
	t.Run("a record is the webhook's", func(t *testing.T) { annotated(t, c) })
	t.Run("PeerPods are the adaptor's and the controller's", func(t *testing.T) { claimed(t, c) })
	t.Run("a pod gets its VM and leaves nothing", func(t *testing.T) { booted(t, c, node) })
	t.Run("an update leaves the relay alone", func(t *testing.T) {
		before := in("get", "pods", "-l", "app.kubernetes.io/name in (agent-relay,provider-qemu)", "-o", podState)
		in("rollout", "restart", "daemonset/cloud-api-adaptor-daemonset")
		in("rollout", "status", "daemonset/cloud-api-adaptor-daemonset", "--timeout="+wait)
		if after := in("get", "pods", "-l", "app.kubernetes.io/name in (agent-relay,provider-qemu)", "-o", podState); before != after || before == "" {
			t.Errorf("before %s, after %s", before, after)
		}
	})
	t.Run("nothing is forbidden", func(t *testing.T) {
		for _, one := range workloads {
			log := in("logs", one, "--all-containers", "--all-pods")
			if log == "" && !strings.Contains(one, "relay") {
				t.Errorf("%s has no log", one)
			}
			for line := range strings.Lines(log) {
				if strings.Contains(line, "forbidden") || strings.Contains(line, "permission denied") {
					t.Errorf("%s: %s", one, line)
				}
			}
		}
	})
}

var workloads = []string{"daemonset/agent-relay", "daemonset/provider-qemu", "daemonset/cloud-api-adaptor-daemonset", "deployment/peerpod-ctrl", "deployment/peerpods-webhook"}

const podState = `jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount} {end}`

// sized makes a pod of the runtime class and looks at what became of it.
func sized(t *testing.T, c *cluster.ControlPlane) {
	t.Helper()
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"sized","namespace":"default"},"spec":{"runtimeClassName":"kata-remote","containers":[{"name":"a","image":"outrigger.test/tools:1","resources":{"requests":{"cpu":"1500m","memory":"1Gi"}}}]}}`
	cmd := c.Command("create", "--dry-run=server", "-o", "json", "-f", "-")
	cmd.Stdin = strings.NewReader(pod)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	var made struct {
		Metadata struct{ Annotations map[string]string }
		Spec     struct {
			NodeSelector map[string]string
			Containers   []struct {
				Resources struct{ Limits map[string]string }
			}
		}
	}
	if err := json.Unmarshal(out, &made); err != nil {
		t.Fatal(err)
	}
	// 1 GiB and the overhead of the RuntimeClass.
	if a := made.Metadata.Annotations; a["io.katacontainers.config.hypervisor.default_vcpus"] != "2" || a["io.katacontainers.config.hypervisor.default_memory"] != "1144" {
		t.Errorf("annotations %v", a)
	}
	if made.Spec.Containers[0].Resources.Limits["kata.peerpods.io/vm"] != "1" {
		t.Errorf("limits %v", made.Spec.Containers[0].Resources.Limits)
	}
	if _, ok := made.Spec.NodeSelector["node.kubernetes.io/worker"]; !ok {
		t.Errorf("node selector %v: the RuntimeClass's is missing", made.Spec.NodeSelector)
	}
}

// annotated changes a pod that waits, as a user can.
func annotated(t *testing.T, c *cluster.ControlPlane) {
	t.Helper()
	c.Apply(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"gated"},"spec":{"runtimeClassName":"kata-remote","schedulingGates":[{"name":"example.com/wait"}],"containers":[{"name":"a","image":"outrigger.test/tools:1","resources":{"requests":{"cpu":"1"}}}]}}`)
	defer c.Kubectl(t, "delete", "pod", "gated", "--timeout="+wait)
	out, err := c.TryKubectl("annotate", "pod", "gated", "--overwrite", `outrigger.dev/resources={"containers":{"a":{"limits":{"cpu":"1e999999"}}}}`)
	if err == nil || !strings.Contains(err.Error(), "written by the webhook") {
		t.Errorf("another record: %v, %s", err, out)
	}
	c.Kubectl(t, "annotate", "pod", "gated", "example.com/a=b")
	c.Kubectl(t, "label", "pod", "gated", "example.com/a=b")
}

// claimed makes a PeerPod as somebody with a wide role, and as an administrator.
func claimed(t *testing.T, c *cluster.ControlPlane) {
	t.Helper()
	c.Apply(t, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"wide"},"rules":[{"apiGroups":["confidentialcontainers.org"],"resources":["peerpods","peerpods/status"],"verbs":["get","create","update","patch","delete"]}]}
---
{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"wide"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"wide"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"somebody"}]}`)
	claim := `{"apiVersion":"confidentialcontainers.org/v1alpha1","kind":"PeerPod","metadata":{"name":"claim","namespace":"default"},"spec":{"cloudProvider":"qemu","instanceID":"another-pods"}}`
	create := func(who ...string) (string, error) {
		cmd := c.Command(append([]string{"create", "--dry-run=server", "-f", "-"}, who...)...)
		cmd.Stdin = strings.NewReader(claim)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		out, err := create("--as=somebody")
		if err != nil && strings.Contains(out, `needs the verb "claim"`) {
			break
		}
		if time.Now().After(end) { // the server has long seen role and policy
			t.Fatalf("somebody with a wide role: %v, %s", err, out)
		}
	}
	if out, err := create(); err != nil {
		t.Errorf("the administrator, who may claim: %v, %s", err, out)
	}
}

// TestAdaptorActsForItsNode: the token of one node's adaptor, which a node that was
// taken over gives away, does nothing to other nodes.
func TestAdaptorActsForItsNode(t *testing.T) {
	c := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	c.Kubectl(t, "create", "namespace", namespace)
	c.Kubectl(t, "apply", "--server-side", "-k", filepath.Join(stand.Root(), "deploy/base/crd"))
	for _, file := range []string{"adaptor/rbac.yaml", "adaptor/node.yaml", "controller/claims.yaml"} {
		c.Kubectl(t, "apply", "-n", namespace, "-f", filepath.Join(stand.Root(), "deploy/base", file))
	}
	c.Apply(t, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"mine"}}
---
{"apiVersion":"v1","kind":"Node","metadata":{"name":"other"}}`)
	c.Kubectl(t, "wait", "--for=condition=Established", "crd/peerpods.confidentialcontainers.org", "crd/podvmpools.confidentialcontainers.org", "--timeout=60s")
	c.Kubectl(t, "apply", "--validate=strict", "-f", filepath.Join(stand.Root(), "deploy/samples/podvmpool.yaml"))
	mine, none := c.NodeAccount(t, namespace, "cloud-api-adaptor", "mine"), c.ServiceAccount(t, namespace, "cloud-api-adaptor")
	for _, node := range []string{"mine", "other", ""} {
		c.Apply(t, peerPod("pod-of-"+node+"x", node))
	}
	for _, name := range []string{"waits", "waits-too"} {
		c.Apply(t, `{"apiVersion":"confidentialcontainers.org/v1alpha1","kind":"PeerPod","metadata":{"name":"`+name+`","namespace":"default"},"spec":{"pool":{"name":"small","template":"t","authority":"a"}}}`)
	}
	apply := func(u *cluster.User, manifest string) error {
		cmd := u.Command("create", "--validate=false", "-f", "-")
		cmd.Stdin = strings.NewReader(manifest)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}
	run := func(u *cluster.User, args ...string) func() error {
		return func() error { _, err := u.TryKubectl(args...); return err }
	}
	patch := func(u *cluster.User, path, patch string) func() error {
		return func() error { return mergePatch(u, path, patch) }
	}
	peerpods := "/apis/confidentialcontainers.org/v1alpha1/namespaces/default/peerpods/"
	const capacity, phase, id = `{"status":{"capacity":{"kata.peerpods.io/vm":"5"}}}`, `{"status":{"phase":"Ready"}}`, `{"spec":{"instanceID":"i-1"}}`
	take := func(node string) string {
		return `{"spec":{"nodeName":"` + node + `","pool":{"claim":{"namespace":"default","name":"web","time":"2026-01-02T03:04:05.000000Z"}}}}`
	}
	refused := map[string]func() error{
		"VM of a pool for another node":    patch(mine, peerpods+"waits", take("other")),
		"VM of a pool for no node":         patch(mine, peerpods+"waits", `{"spec":{"instanceID":"i-1"}}`),
		"VM of a pool deleted":             run(mine, "delete", "peerpod", "waits"),
		"status of another node":           patch(mine, "/api/v1/nodes/other/status", capacity),
		"status by a token of no node":     patch(none, "/api/v1/nodes/mine/status", capacity),
		"PeerPod for another node":         func() error { return apply(mine, peerPod("new", "other")) },
		"PeerPod for no node":              func() error { return apply(mine, peerPod("new", "")) },
		"PeerPod by a token of no node":    func() error { return apply(none, peerPod("new", "mine")) },
		"instance of another's PeerPod":    patch(mine, peerpods+"pod-of-otherx", id),
		"another's PeerPod made one's own": patch(mine, peerpods+"pod-of-otherx", `{"spec":{"nodeName":"mine"}}`),
		"one's PeerPod made another's":     patch(mine, peerpods+"pod-of-minex", `{"spec":{"nodeName":"other"}}`),
		"nobody's PeerPod":                 patch(mine, peerpods+"pod-of-x", id),
		"status of another's PeerPod":      patch(mine, peerpods+"pod-of-otherx/status", phase),
		"another's PeerPod deleted":        run(mine, "delete", "peerpod", "pod-of-otherx"),
	}
	// The server sees a policy some time after it was made.
	for end := time.Now().Add(time.Minute); refused["status of another node"]() == nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an adaptor writes the status of another node")
		}
	}
	for what, try := range refused {
		if err := try(); err == nil || !strings.Contains(err.Error(), "acts for its own node only") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, allowed := range []struct {
		what string
		try  func() error
	}{
		{"status of its node", patch(mine, "/api/v1/nodes/mine/status", capacity)},
		{"PeerPod of its node", func() error { return apply(mine, peerPod("new", "mine")) }},
		{"its instance", patch(mine, peerpods+"new", id)},
		{"its status", patch(mine, peerpods+"new/status", phase)},
		{"VM of a pool", patch(mine, peerpods+"waits", take("mine"))},
		{"VM of a pool deleted, once it is its own", run(mine, "delete", "peerpod", "waits")},
		{"its end", run(mine, "delete", "peerpod", "new")},
		{"an administrator", run(c.User, "delete", "peerpod", "pod-of-otherx")},
	} {
		if err := allowed.try(); err != nil {
			t.Errorf("%s: %v", allowed.what, err)
		}
	}
	// Nor does anybody undo what is for good.
	if err := mergePatch(c.User, peerpods+"waits-too", take("mine")); err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{`{"spec":{"pool":{"claim":null}}}`, `{"spec":{"pool":{"claim":{"name":"other"}}}}`, `{"spec":{"pool":null}}`, `{"spec":{"pool":{"authority":"b"}}}`} {
		if err := mergePatch(c.User, peerpods+"waits-too", change); err == nil || !strings.Contains(err.Error(), "cannot c") {
			t.Errorf("%s: %v", change, err)
		}
	}
}

// mergePatch asks for no more than the verb patch, unlike kubectl.
func mergePatch(u *cluster.User, path, patch string) error {
	client, err := clientrest.HTTPClientFor(u.RESTConfig())
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequest(http.MethodPatch, u.Server+path, strings.NewReader(patch))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return err
}

func peerPod(name, node string) string {
	return `{"apiVersion":"confidentialcontainers.org/v1alpha1","kind":"PeerPod","metadata":{"name":"` + name + `","namespace":"default"},"spec":{"cloudProvider":"qemu","podName":"p","nodeName":"` + node + `"}}`
}

// booted makes a pod, sees its VM at the provider, and removes it. The VM has no
// registry to pull from, so its container never starts; the end-to-end tests
// run containers.
func booted(t *testing.T, c *cluster.ControlPlane, node *cluster.Node) {
	t.Helper()
	c.Apply(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"booted"},"spec":{"runtimeClassName":"kata-remote","terminationGracePeriodSeconds":1,"containers":[{"name":"a","image":"outrigger.test/tools:1","imagePullPolicy":"Never"}]}}`)
	became(t, c, func(peerpods string) bool { return strings.HasPrefix(peerpods, "Ready podvm-booted-") })
	state := deployed.HostFolder(node, "/var/lib/outrigger/qemu/instances")
	if entries, err := os.ReadDir(state); err != nil || len(entries) != 1 {
		t.Errorf("the provider has %v, %v", entries, err)
	}
	c.Kubectl(t, "delete", "pod", "booted", "--timeout="+wait)
	became(t, c, func(peerpods string) bool { return peerpods == "" })
	// The provider removes the folder with its last instance.
	if entries, _ := os.ReadDir(state); len(entries) > 0 {
		t.Errorf("instances are left: %v", entries)
	}
}

// became waits until the PeerPods, each as "PHASE INSTANCE ", are as they should
// be.
func became(t *testing.T, c *cluster.ControlPlane, right func(string) bool) {
	t.Helper()
	patience, err := time.ParseDuration(wait)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		peerpods := c.Kubectl(t, "get", "peerpods", "-o", "jsonpath={range .items[*]}{.status.phase} {.spec.instanceID} {end}")
		if right(peerpods) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %s PeerPods are %q", wait, peerpods)
		}
	}
}

// describe shows why something does not get ready.
func describe(t *testing.T, c *cluster.ControlPlane) {
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"-n", namespace, "get", "events", "--sort-by=.lastTimestamp"},
	} {
		out, _ := c.TryKubectl(args...)
		t.Log(out)
	}
	for _, one := range workloads {
		for _, more := range []string{"--previous=true", "--previous=false"} {
			out, err := c.TryKubectl("-n", namespace, "logs", one, "--tail=20", more)
			t.Logf("%s %s: %s%v", one, more, out, err)
		}
	}
}

// TestImagesAreReproducible builds an image twice, the second time without what
// the first left.
func TestImagesAreReproducible(t *testing.T) {
	one, other := deployed.CompiledImages(t, "agent-relay"), deployed.CompiledImages(t, "agent-relay")
	first, err := one[0].Image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	second, err := other[0].Image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Errorf("%s, then %s", first, second)
	}
	config, err := one[0].Image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if !config.Created.IsZero() && config.Created.After(time.Unix(0, 0)) {
		t.Errorf("made %s", config.Created)
	}
}
