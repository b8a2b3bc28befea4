// SPDX-License-Identifier: Apache-2.0

//go:build integration

package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/outrigger/outrigger/internal/testns"
	"github.com/outrigger/outrigger/test/cluster"
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
	for i, r := range all {
		t.Run(r.name, func(t *testing.T) {
			if err := dryRun(c, manifests(t, parse(t, renders[i]))); err != nil {
				t.Error(err)
			}
		})
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

// images makes the images of an installation and answers them for a node.
func images(t *testing.T, names ...string) []cluster.Image {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(filepath.Join(root, "deploy/images.sh"), names...)
	cmd.Env = append(os.Environ(), "OUT="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var all []cluster.Image
	for _, name := range names {
		index, err := layout.ImageIndexFromPath(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		image, err := index.Image(manifest.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, cluster.Image{Ref: "localhost/outrigger/" + name + ":latest", Image: image})
	}
	return all
}

// TestOverlayRuns applies the overlay qemu, but for a few folders, to a cluster whose node
// has the images of `make image` and `make image-qemu`: every container starts
// and gets ready with the permissions, mounts and settings of the manifests.
func TestOverlayRuns(t *testing.T) {
	if podvm := os.Getenv("OUTRIGGER_PODVM_DIR"); podvm == "" {
		t.Setenv("OUTRIGGER_PODVM_DIR", absolute(t, "bin/podvm"))
	}
	if _, err := os.Stat(filepath.Join(os.Getenv("OUTRIGGER_PODVM_DIR"), "initrd.cpio")); err != nil {
		t.Skip("the image of provider-qemu has the pod VM image in it, which is not built: run `make podvm`")
	}
	render := overlay(t, "qemu")
	c := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	node := cluster.StartNode(t, c, cluster.NodeOptions{
		Labels:   map[string]string{"node.kubernetes.io/worker": ""},
		Runtimes: []cluster.Runtime{{Handler: "kata-remote", Shim: shim(t), PodAnnotations: []string{"io.katacontainers.*"}}},
		Images:   images(t, "cloud-api-adaptor", "agent-relay", "peerpod-ctrl", "peerpods-webhook", "provider-qemu"),
	})
	in := func(args ...string) string { return c.Kubectl(t, append([]string{"-n", namespace}, args...)...) }
	t.Cleanup(func() {
		if t.Failed() {
			describe(t, c)
		}
	})
	c.Apply(t, ownFolders(t, render, node))
	in("rollout", "status", "deployment/peerpod-ctrl", "--timeout="+wait) // its pod may not be there yet
	in("wait", "--for=condition=Ready", "pods", "--all", "--timeout="+wait)
	t.Run("the node advertises VMs", func(t *testing.T) {
		c.Kubectl(t, "wait", "node", "--all", `--for=jsonpath={.status.allocatable.kata\.peerpods\.io/vm}=10`, "--timeout="+wait)
	})
	t.Run("the webhook sizes pods", func(t *testing.T) { sized(t, c) })
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

// shim builds the handler of the RuntimeClass.
func shim(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "containerd-shim-outrigger-v2")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/containerd-shim-outrigger-v2")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// booted makes a pod, sees its VM at the provider, and removes it. The VM has no
// registry to pull from, so its container never starts; the end-to-end tests
// run containers.
func booted(t *testing.T, c *cluster.ControlPlane, node *cluster.Node) {
	t.Helper()
	c.Apply(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"booted"},"spec":{"runtimeClassName":"kata-remote","terminationGracePeriodSeconds":1,"containers":[{"name":"a","image":"outrigger.test/tools:1","imagePullPolicy":"Never"}]}}`)
	became(t, c, func(peerpods string) bool { return strings.HasPrefix(peerpods, "Ready podvm-booted-") })
	state := filepath.Join(node.Dir, "host/var/lib/outrigger/qemu/instances")
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

// ownFolders puts folders of the node that are those of this machine, since a
// test's node has only /run and a few more for itself, below the node's own.
func ownFolders(t *testing.T, render []byte, node *cluster.Node) string {
	t.Helper()
	text := string(render)
	for _, folder := range []string{"/var/lib/outrigger/qemu", "/opt/cloud-api-adaptor/plugins", "/etc/kubernetes", "/var/lib/kubelet/pki"} {
		line := "hostPath:\n          path: " + folder + "\n"
		if !strings.Contains(text, line) {
			t.Fatalf("no volume is the folder %s", folder)
		}
		text = strings.ReplaceAll(text, line, "hostPath:\n          path: "+filepath.Join(node.Dir, "host", folder)+"\n")
	}
	return text
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

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestImagesAreReproducible builds an image twice, the second time without what
// the first left.
func TestImagesAreReproducible(t *testing.T) {
	one, other := images(t, "agent-relay"), images(t, "agent-relay")
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
