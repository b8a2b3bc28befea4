// SPDX-License-Identifier: Apache-2.0

// Package deployed installs overlays of deploy/ on nodes of test/cluster, as
// `kubectl apply -k` does, with images made from this tree.
package deployed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// What the manifests call things.
const (
	Namespace = "confidential-containers-system"
	// WorkerLabel marks nodes that run pods in VMs.
	WorkerLabel = "node.kubernetes.io/worker"
	// Handler is that of the RuntimeClass, which has the same name.
	Handler = "kata-remote"
)

// Daemons are the images that every overlay needs.
var Daemons = []string{"cloud-api-adaptor", "agent-relay", "peerpod-ctrl", "peerpods-webhook"}

// Images makes images of an installation, by deploy/images.sh of the programs in bin/.
func Images(t testing.TB, names ...string) []cluster.Image {
	t.Helper()
	return images(t, "PROGRAMS="+filepath.Dir(stand.Binary(t, "oci-image")), names)
}

// CompiledImages makes them as `make image` does, of the sources alone.
func CompiledImages(t testing.TB, names ...string) []cluster.Image {
	t.Helper()
	return images(t, "PROGRAMS=", names)
}

func images(t testing.TB, programs string, names []string) []cluster.Image {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(filepath.Join(stand.Root(), "deploy/images.sh"), names...)
	cmd.Env = append(os.Environ(), "OUT="+dir, programs)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var all []cluster.Image
	for _, name := range names {
		all = append(all, image(t, dir, name))
	}
	return all
}

func image(t testing.TB, dir, name string) cluster.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, name))
	must(t, err)
	manifest, err := index.IndexManifest()
	must(t, err)
	made, err := index.Image(manifest.Manifests[0].Digest)
	must(t, err)
	return cluster.Image{Ref: "localhost/outrigger/" + name + ":latest", Image: made}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// RequirePodVM skips a test that needs the pod VM image, and lets programs that
// the test starts find it.
func RequirePodVM(t *testing.T) {
	t.Helper()
	dir := os.Getenv("OUTRIGGER_PODVM_DIR")
	if dir == "" {
		dir = filepath.Join(stand.Root(), "bin/podvm")
		t.Setenv("OUTRIGGER_PODVM_DIR", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "initrd.cpio")); err != nil {
		t.Skipf("the pod VM image is not built (%v): run `make podvm`", err)
	}
}

// Shim is the handler of the RuntimeClass.
func Shim(t testing.TB) cluster.Runtime {
	t.Helper()
	return cluster.Runtime{
		Handler: Handler, Shim: stand.Binary(t, "containerd-shim-outrigger-v2"),
		PodAnnotations: []string{"io.katacontainers.*", "outrigger.dev/*"},
	}
}

// Render returns what `kubectl apply -k deploy/overlays/NAME` applies, with more
// keys of peer-pods-cm.
func Render(t testing.TB, u *cluster.User, name string, settings map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	base, err := filepath.Rel(dir, filepath.Join(stand.Root(), "deploy/overlays", name))
	must(t, err)
	text := fmt.Sprintf("resources: [%s]\nnamespace: %s\ngeneratorOptions: {disableNameSuffixHash: true}\n", base, Namespace)
	if len(settings) > 0 {
		text += "configMapGenerator:\n- name: peer-pods-cm\n  behavior: merge\n  literals:\n"
		for key, value := range settings {
			text += fmt.Sprintf("  - %q\n", key+"="+value)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600))
	return u.Kubectl(t, "kustomize", dir)
}

// hostFolders are those of a node that a test's node shares with this machine:
// it has only /run and a few more for itself.
var hostFolders = []string{"/var/lib/outrigger/qemu", "/opt/cloud-api-adaptor/plugins", "/etc/kubernetes", "/var/lib/kubelet/pki"}

// HostFolder is where OwnFolders puts a folder of the node.
func HostFolder(n *cluster.Node, folder string) string { return filepath.Join(n.Dir, "host", folder) }

// OwnFolders changes manifests so that folders of the node that are those of
// this machine are below the node's own.
func OwnFolders(manifests string, n *cluster.Node) string {
	lines := strings.Split(manifests, "\n")
	for i, line := range lines {
		folder, ok := strings.CutPrefix(strings.TrimSpace(line), "path: ")
		if ok && i > 0 && slices.Contains(hostFolders, folder) && strings.HasSuffix(lines[i-1], "hostPath:") {
			lines[i] = strings.Replace(line, folder, HostFolder(n, folder), 1)
		}
	}
	return strings.Join(lines, "\n")
}

// KubeletConfig gives the adaptor the node's identity, by which it reads pull
// secrets, where a node's kubelet has it.
func KubeletConfig(t testing.TB, n *cluster.Node) {
	t.Helper()
	folder := HostFolder(n, "/etc/kubernetes")
	must(t, os.MkdirAll(folder, 0o755))
	data, err := os.ReadFile(filepath.Join(n.Dir, "system-node-"+n.Name+".kubeconfig"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, "kubelet.conf"), data, 0o600))
}
