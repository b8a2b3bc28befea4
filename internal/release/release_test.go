// SPDX-License-Identifier: Apache-2.0

package release

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kustomize answers the path of the tool that `make setup` installs.
func kustomize(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("OUTRIGGER_CACHE")
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(base, "outrigger")
	}
	path := filepath.Join(cache, "tools", "kustomize")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%v: run `make setup`", err)
	}
	return path
}

// options of a release whose only program is this test.
func options(t *testing.T) Options {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Version: "v0.1.3", Prefix: "registry.example.com/images", Root: "../..",
		Kustomize: kustomize(t), Output: t.TempDir(), Programs: []string{program},
	}
}

func TestRelease(t *testing.T) {
	o := options(t)
	folder, err := Make(o)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(o.Output, "infrastructure-outrigger", "v0.1.3"); folder != want {
		t.Errorf("the folder is %s, clusterctl looks into %s", folder, want)
	}
	var names []string
	for _, pattern := range []string{"*.yaml", "*.json", "*.txt"} {
		files, _ := filepath.Glob(filepath.Join(folder, pattern))
		for _, f := range files {
			names = append(names, filepath.Base(f))
		}
	}
	want := []string{
		"cluster-template-machinepool.yaml", "cluster-template-outrigger-topology.yaml", "cluster-template-outrigger.yaml",
		"cluster-template-topology.yaml", "cluster-template.yaml", "clusterclass-outrigger-docker.yaml",
		"clusterclass-outrigger.yaml", "infrastructure-components.yaml", "metadata.yaml", "sbom.spdx.json", "sha256sums.txt",
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "--quiet", "sha256sums.txt")
	sums.Dir = folder
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("sha256sum --check: %v\n%s", err, out)
	}
	components := read(t, folder, "infrastructure-components.yaml")
	for _, image := range []string{"image: registry.example.com/images/capi-manager:v0.1.3", ":=registry.example.com/images/cluster-loadbalancer:v0.1.3}"} {
		if !strings.Contains(components, image) {
			t.Errorf("the components do not have %s", image)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(o.Output, "*", ".making-*")); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Equal sources give equal releases.
func TestReleaseIsReproducible(t *testing.T) {
	var sums [2]string
	for i := range sums {
		folder, err := Make(options(t))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = read(t, folder, "sha256sums.txt")
	}
	if d := cmp.Diff(sums[0], sums[1]); d != "" {
		t.Error(d)
	}
}

func TestWhatIsNoRelease(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"version":         {func(o *Options) { o.Version = "45dd844" }, "VERSION"},
		"unknown series":  {func(o *Options) { o.Version = "v7.8.9" }, "no series 7.8"},
		"name":            {func(o *Options) { o.Name = "My_Cloud" }, "My_Cloud"},
		"no image":        {func(o *Options) { o.Name = "mycloud" }, "-image"},
		"unknown image":   {func(o *Options) { o.Images = []string{"localhost/other:latest"} }, "localhost/other:latest"},
		"other provider":  {func(o *Options) { o.Name, o.Images = "mycloud", ours }, "infrastructure-mycloud"},
		"no registry":     {func(o *Options) { o.Prefix = "" }, "PREFIX"},
		"no program":      {func(o *Options) { o.Programs = nil }, "programs"},
		"missing program": {func(o *Options) { o.Programs = []string{"/nowhere/capi-manager"} }, "make build"},
		"no Go program":   {func(o *Options) { o.Programs = []string{"../../metadata.yaml"} }, "make build"},
		"no kustomize":    {func(o *Options) { o.Kustomize = "/nowhere/kustomize" }, "kustomize build"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			c.change(&o)
			if _, err := Make(o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v does not say %q", err, c.want)
			}
			if made, _ := os.ReadDir(o.Output); len(made) > 0 {
				t.Errorf("made %s", made)
			}
		})
	}
}

// Each rule that components break is told.
func TestCheck(t *testing.T) {
	o := options(t)
	o.complete()
	sound, err := o.components()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ was, is, want string }{
		"label":            {"cluster.x-k8s.io/provider: infrastructure-outrigger", "a: b", "Namespace outrigger-capi-system lacks the label"},
		"container":        {"name: manager\n", "name: controller\n", "no container manager"},
		"name of a CRD":    {"name: dockermachines.infra", "name: dockermachine.infra", "not dockermachines.infrastructure.cluster.x-k8s.io"},
		"contract":         {"cluster.x-k8s.io/v1beta2: v1beta2", "x: y", "which is no version that is served"},
		"version":          {"cluster.x-k8s.io/v1beta1: v1alpha1", "cluster.x-k8s.io/v1beta1: v1alpha2", `says "v1alpha2"`},
		"second Namespace": {"kind: ServiceAccount\n", "kind: Namespace\n", "2 Namespaces"},
		"no Deployment":    {"kind: Deployment\n", "kind: DaemonSet\n", "0 Deployments"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(string(sound), c.was) {
				t.Fatalf("components do not have %q", c.was)
			}
			err := check([]byte(strings.Replace(string(sound), c.was, c.is, 1)), "infrastructure-outrigger")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v does not say %q", err, c.want)
			}
		})
	}
}

func TestBillOfMaterials(t *testing.T) {
	program, other := filepath.Join(t.TempDir(), "capi-release"), filepath.Join(t.TempDir(), "other")
	// The program of a test has no list of its modules.
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/capi-release").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Symlink(program, other); err != nil {
		t.Fatal(err)
	}
	data, err := (&Options{Name: "outrigger", Version: "v0.1.0", License: "Apache-2.0", Programs: []string{program, other}}).bill()
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{documentID: true}
	purls := map[string]bool{}
	for _, p := range d.Packages {
		if ids[p.SPDXID] {
			t.Errorf("%s is the name of two", p.SPDXID)
		}
		ids[p.SPDXID] = true
		for _, r := range p.ExternalRefs {
			path, _, _ := strings.Cut(r.Locator, "@")
			if purls[path] {
				t.Errorf("%s is listed twice", path)
			}
			purls[path] = true
		}
	}
	for _, want := range []string{"pkg:golang/sigs.k8s.io/cluster-api", "pkg:golang/sigs.k8s.io/yaml", "pkg:golang/stdlib"} {
		if !purls[want] {
			t.Errorf("%s is not listed", want)
		}
	}
	for _, r := range d.Relationships {
		if !ids[r.Element] || !ids[r.Related] {
			t.Errorf("%+v is about what is not listed", r)
		}
	}
}

func TestTimestamp(t *testing.T) {
	if got, err := timestamp("1700000000"); got != "2023-11-14T22:13:20Z" || err != nil {
		t.Errorf("timestamp: %s, %v", got, err)
	}
	if _, err := timestamp("yesterday"); err == nil {
		t.Error("yesterday is a number of seconds")
	}
}

func TestCommand(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"help":         {[]string{"-h"}, exitOK, "-kustomize"},
		"unknown flag": {[]string{"-x"}, exitUsage, "-x"},
		"no version":   {[]string{"-prefix", "a"}, exitError, "-version"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if code := Run(c.args, &out, &out); code != c.code || !strings.Contains(out.String(), c.want) {
				t.Errorf("code %d: %s", code, &out)
			}
		})
	}
}
