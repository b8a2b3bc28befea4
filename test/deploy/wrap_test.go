// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/outrigger/outrigger/internal/volumes"
)

// wrappers are the folders of deploy/csi/wrap, by the provider that they are for.
func wrappers(t testing.TB) []string {
	return slices.DeleteFunc(folders(t, "deploy/csi/wrap"), func(name string) bool { return name == "container" })
}

// wrapped renders what testdata has of a driver with its wrapper, as the pages say.
func wrapped(t testing.TB, name string) []byte {
	t.Helper()
	kustomize := tool(t, "kustomize")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	up, err := filepath.Rel(dir, here)
	if err != nil {
		t.Fatal(err)
	}
	driver, err := os.ReadFile(filepath.Join("testdata/wrapped", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [driver.yaml]\ncomponents: [%[1]s/deploy/csi/wrap/%[2]s, %[1]s/deploy/csi/wrap/container]\n", up, name)
	for file, data := range map[string][]byte{"driver.yaml": driver, "kustomization.yaml": []byte(text)} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return output(t, kustomize, "build", dir)
}

// TestWrappers: the driver's socket has moved, kubelet and sidecars find the wrapper's where they look, and the
// wrapper reaches the driver's.
func TestWrappers(t *testing.T) {
	for _, name := range wrappers(t) {
		t.Run(name, func(t *testing.T) {
			var driver storagev1.CSIDriver
			templates := map[string]corev1.PodTemplateSpec{}
			namespaces := map[string]string{}
			accounts := map[string]string{}
			for _, o := range parse(t, wrapped(t, name)) {
				var binding rbac.ClusterRoleBinding
				var workload appsv1.Deployment // a DaemonSet has its template there, too
				into := map[string]any{"CSIDriver": &driver, "Deployment": &workload, "DaemonSet": &workload, "ClusterRoleBinding": &binding}[o.GetKind()]
				if into == nil {
					continue
				}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
					t.Fatal(err)
				}
				if into == any(&workload) {
					templates[o.GetKind()], namespaces[o.GetKind()] = workload.Spec.Template, workload.Namespace
				}
				for _, s := range binding.Subjects {
					accounts[binding.RoleRef.Name] = s.Namespace + "/" + s.Name
				}
			}
			if driver.Spec.PodInfoOnMount == nil || !*driver.Spec.PodInfoOnMount {
				t.Error("kubelet does not say for which pod a volume is")
			}
			if err := volumes.CheckWrappable(driver.Name, name); err != nil {
				t.Error(err)
			}
			for kind, mode := range map[string]string{"Deployment": "controller", "DaemonSet": "node"} {
				spec := templates[kind].Spec
				checkWrapper(t, mode, name, &spec)
				if got := accounts["outrigger-csi-wrap-"+mode]; got != namespaces[kind]+"/"+spec.ServiceAccountName {
					t.Errorf("the role of the %s is bound to %s", mode, got)
				}
			}
		})
	}
}

func checkWrapper(t *testing.T, mode, providerName string, spec *corev1.PodSpec) {
	t.Helper()
	mounts := map[string]map[string]string{} // by container and volume
	for _, c := range spec.Containers {
		mounts[c.Name] = map[string]string{}
		for _, m := range c.VolumeMounts {
			mounts[c.Name][m.Name] = m.MountPath
			if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
				t.Errorf("%s: container %s mounts %s, which there is not", mode, c.Name, m.Name)
			}
		}
		if c.Name != "outrigger-csi" {
			continue
		}
		for _, want := range []string{"-mode=" + mode, "-wrap=unix:///wrapped/csi.sock"} {
			if !slices.Contains(c.Args, want) {
				t.Errorf("%s: the wrapper has the arguments %q", mode, c.Args)
			}
		}
		if !slices.Contains(c.Env, corev1.EnvVar{Name: "CLOUD_PROVIDER", Value: providerName}) {
			t.Errorf("%s: the wrapper has the variables %v", mode, c.Env)
		}
	}
	delete(mounts["outrigger-csi"], "direct-volumes")
	for name, has := range mounts {
		_, moved := has["wrapped-socket"]
		switch looks := has[socketVolume(mounts)]; {
		case name == "outrigger-csi" && (has["wrapped-socket"] != "/wrapped" || looks != "/csi"):
			t.Errorf("%s: the wrapper has the sockets %v", mode, has)
		case name == "sidecar" && (moved || looks == ""):
			t.Errorf("%s: the sidecar has the sockets %v", mode, has)
		case name != "outrigger-csi" && name != "sidecar" && (!moved || looks != ""):
			t.Errorf("%s: the driver has the sockets %v", mode, has)
		}
	}
	if len(mounts) != 3 {
		t.Errorf("%s: containers %v", mode, mounts)
	}
}

// socketVolume returns where the sidecar looks for a socket.
func socketVolume(mounts map[string]map[string]string) string {
	for name := range mounts["sidecar"] {
		return name
	}
	return ""
}

// TestWrapperPages: each driver has its page, with the names of its objects, and volumes.md has them all.
func TestWrapperPages(t *testing.T) {
	for _, name := range wrappers(t) {
		text := page(t, "wrap/"+name+".md")
		for _, o := range parse(t, wrapped(t, name)) {
			if kind := o.GetKind(); slices.Contains([]string{"CSIDriver", "Deployment", "DaemonSet"}, kind) && !strings.Contains(text, o.GetName()) {
				t.Errorf("wrap/%s.md does not name %s", name, id(o))
			}
		}
		for _, want := range []string{"deploy/csi/wrap/" + name, "deploy/csi/wrap/container", "podInfoOnMount", "volumeHandle"} {
			if !strings.Contains(text, want) {
				t.Errorf("wrap/%s.md does not name %s", name, want)
			}
		}
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, "docs/wrap", match[1])); err != nil {
				t.Errorf("wrap/%s.md: %v", name, err)
			}
		}
		if !regexp.MustCompile(`\| \[.*\]\(wrap/` + name + `\.md\) \|`).MatchString(page(t, "volumes.md")) {
			t.Errorf("volumes.md has no link to wrap/%s.md", name)
		}
	}
}
