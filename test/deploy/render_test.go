// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	root      = "../.."
	namespace = "confidential-containers-system"
	// kubeVersion is the one that the chart is rendered for.
	kubeVersion = "1.36.0"
)

// cacheFolder is where `make setup` puts what it builds.
func cacheFolder() string {
	home, _ := os.UserHomeDir()
	return cmp.Or(os.Getenv("OUTRIGGER_CACHE"), filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache")), "outrigger"))
}

// tool finds a program that `make setup` builds.
func tool(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(cacheFolder(), "tools", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("manifests are rendered with the pinned %s, which is not built: run `make setup`", name)
	}
	return path
}

// output returns what a program prints, or fails the test with what it says.
func output(t testing.TB, program string, args ...string) []byte {
	t.Helper()
	out, stderr, err := execute(program, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, stderr)
	}
	return out
}

func execute(program string, args ...string) (stdout, stderr []byte, err error) {
	var out, errs bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.Bytes(), errs.Bytes(), err
}

// folders returns the names of the folders in dir.
func folders(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// rendered keeps renders of this run by what they are of: nothing that they are
// made from changes.
var rendered sync.Map

func once(key string, render func() []byte) []byte {
	if known, ok := rendered.Load(key); ok {
		return known.([]byte)
	}
	fresh := render()
	rendered.Store(key, fresh)
	return fresh
}

// overlay renders an overlay, with components if there are any.
func overlay(t testing.TB, name string, components ...string) []byte {
	t.Helper()
	return once("overlay "+name+fmt.Sprint(components), func() []byte { return build(t, name, components) })
}

func build(t testing.TB, name string, components []string) []byte {
	t.Helper()
	kustomize := tool(t, "kustomize")
	if len(components) == 0 {
		return output(t, kustomize, "build", filepath.Join(root, "deploy/overlays", name))
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	up, err := filepath.Rel(dir, here)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%s]\ncomponents:\n", filepath.Join(up, "deploy/overlays", name))
	for _, c := range components {
		text += "  - " + filepath.Join(up, "deploy/components", c) + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return output(t, kustomize, "build", dir)
}

// helmArgs are those of `helm template` with a values file of testdata.
func helmArgs(variant string, more ...string) []string {
	args := []string{"template", "outrigger", filepath.Join(root, "deploy/chart"), "--namespace", namespace, "--kube-version", kubeVersion, "--values", "testdata/images.yaml"}
	if variant != "" {
		args = append(args, "--values", filepath.Join("testdata/values", variant+".yaml"))
	}
	return append(args, more...)
}

// chart renders the chart with a values file of testdata.
func chart(t testing.TB, variant string, more ...string) []byte {
	t.Helper()
	helm, args := tool(t, "helm"), helmArgs(variant, more...)
	return once("chart "+strings.Join(args, " "), func() []byte { return output(t, helm, args...) })
}

// variants are the values files in testdata.
func variants(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no values files: %v", err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".yaml")
	}
	return files
}

// parse returns the objects of a render, sorted by kind and name.
func parse(t testing.TB, render []byte) []*unstructured.Unstructured {
	t.Helper()
	all := inOrder(t, render)
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int { return strings.Compare(id(a), id(b)) })
	return all
}

func inOrder(t testing.TB, render []byte) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(render), 4096); ; {
		o := &unstructured.Unstructured{}
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
	return all
}

// id names an object for people.
func id(o *unstructured.Unstructured) string { return o.GetKind() + " " + o.GetName() }

// find returns one object.
func find(t testing.TB, all []*unstructured.Unstructured, want string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return id(o) == want })
	if i < 0 {
		t.Fatalf("there is no %s", want)
	}
	return all[i]
}

// rendering is one thing that can be installed.
type rendering struct {
	name   string
	render func(testing.TB) []byte
}

// renderings are all overlays, one with each component, the CSI driver, and all chart variants.
func renderings(t testing.TB) []rendering {
	var all []rendering
	for _, name := range folders(t, "deploy/overlays") {
		all = append(all, rendering{"overlay-" + name, func(t testing.TB) []byte { return overlay(t, name) }})
	}
	for _, c := range folders(t, "deploy/components") {
		all = append(all, rendering{"overlay-qemu-" + c, func(t testing.TB) []byte { return overlay(t, "qemu", c) }})
	}
	for name, folder := range map[string]string{"csi": "deploy/csi", "csi-snapshots": "deploy/csi/snapshots", "csi-docker": "deploy/csi/docker", "csi-qemu": "deploy/csi/qemu", "csi-aws": "deploy/csi/aws", "csi-azure": "deploy/csi/azure", "csi-ibmcloud": "deploy/csi/ibmcloud"} {
		all = append(all, rendering{name, func(t testing.TB) []byte {
			return output(t, tool(t, "kustomize"), "build", filepath.Join(root, folder))
		}})
	}
	for _, v := range variants(t) {
		all = append(all, rendering{"chart-" + v, func(t testing.TB) []byte { return chart(t, v) }})
	}
	return all
}
