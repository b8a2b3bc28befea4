// SPDX-License-Identifier: Apache-2.0

package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/internal/program"
)

// kustomize returns the path of the tool that `make setup` installs.
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
		Version: "v0.1.3", Prefix: "registry.example.com/images", Root: "../../..",
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
		"no Go program":   {func(o *Options) { o.Programs = []string{"../../../metadata.yaml"} }, "make build"},
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
		"contract":         {"cluster.x-k8s.io/v1beta2: v1beta2", "x: y", "which is not a version that is served"},
		"version":          {"cluster.x-k8s.io/v1beta1: v1beta1", "cluster.x-k8s.io/v1beta1: v1alpha2", `says "v1alpha2"`},
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

func TestCommand(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"help":         {[]string{"-h"}, program.ExitOK, "-kustomize"},
		"unknown flag": {[]string{"-x"}, program.ExitUsage, "-x"},
		"no version":   {[]string{"-prefix", "a"}, program.ExitError, "-version"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if code := Run(c.args, &out, &out); code != c.code || !strings.Contains(out.String(), c.want) {
				t.Errorf("code %d: %s", code, &out)
			}
		})
	}
}
