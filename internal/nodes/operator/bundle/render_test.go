// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

// TestR5Images: what is there is used, what is needed and is not there is told.
func TestR5Images(t *testing.T) {
	for name, test := range map[string]struct{ text, fault, missed string }{
		"good":      {`{"cloudControllerManagerMy": "a", "unknown": "b"}`, "", ""},
		"duplicate": {`{"cloudControllerManagerMy": "b", "cloudControllerManagerMy": "a"}`, "", ""},
		"absent":    {`{}`, "", "my: missed images in config: cloudControllerManagerMy"},
		"partial":   {`{"cloudControllerManagerAWS": "a"}`, "", "my: missed images in config: cloudControllerManagerMy"},
		"empty":     {`{"cloudControllerManagerMy": ""}`, "", "my: missed images in config: cloudControllerManagerMy"},
		"broken":    {`{"cloud`, "unexpected end of JSON input", ""},
		"number":    {`{"cloudControllerManagerMy": 1}`, "cannot unmarshal number", ""},
		"null":      {`null`, "want an object", ""},
		"nothing":   {``, "unexpected end of JSON input", ""},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := bundle.ParseImages([]byte(test.text))
			if test.fault != "" {
				if err == nil || !strings.Contains(err.Error(), test.fault) {
					t.Errorf("the error is %v, want %q", err, test.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r, err := load(t).Render(bundle.Values{Images: parsed})
			if test.missed != "" {
				if err == nil || err.Error() != test.missed {
					t.Errorf("the error is %v, want %q", err, test.missed)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := find[*appsv1.Deployment](t, r.Resources).Spec.Template.Spec.Containers[0].Image; got != "a" {
				t.Errorf("the image is %q", got)
			}
		})
	}
}

// ofKind is a workload without a base, with containers of three names.
func ofKind(kind string) string {
	pod := `
    containers:
    - {name: cloud-controller-manager, image: placeholder}
    - {name: other, image: their/own:1}
    - {name: cloud-node-manager}
    initContainers:
    - {name: cloud-node-manager, image: placeholder}
`
	if kind == "Pod" {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n" + pod
	}
	return "apiVersion: apps/v1\nkind: " + kind + "\nmetadata: {name: x}\nspec:\n  template:\n    spec:\n" + strings.ReplaceAll(pod, "\n    ", "\n      ")
}

// TestB2ImagesByContainerName: in each kind, by both names, and no others.
func TestB2ImagesByContainerName(t *testing.T) {
	for _, kind := range []string{"Pod", "Deployment", "DaemonSet"} {
		folder := "assets"
		if kind == "Pod" {
			folder = "bootstrap"
		}
		r := render(t, load(t, folder+"/x.yaml", ofKind(kind)), bundle.Values{})
		got := map[string]string{}
		for _, o := range append(r.Resources, r.Bootstrap...) {
			spec := bundle.PodSpec(o)
			if spec == nil || o.GetName() != "x" {
				continue
			}
			for _, c := range spec.Containers {
				got[c.Name] = c.Image
			}
			got["init"] = spec.InitContainers[0].Image
		}
		want := map[string]string{"cloud-controller-manager": "r/ccm:1", "other": "their/own:1", "cloud-node-manager": "r/cnm:1", "init": "r/cnm:1"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

// TestBootstrapNeedsItsOwnImagesOnly lets an installer give few images.
func TestBootstrapNeedsItsOwnImagesOnly(t *testing.T) {
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: cloud-node-manager}]}\n"
	b := load(t, "bootstrap/x.yaml", pod)
	objects, err := b.BootstrapResources(bundle.Values{Images: bundle.Images{"cloudNodeManagerMy": "a"}})
	if err != nil || len(objects) != 1 {
		t.Errorf("%d objects, %v", len(objects), err)
	}
	if _, err := b.Resources(bundle.Values{Images: bundle.Images{"cloudControllerManagerMy": "a"}}); err != nil {
		t.Error(err)
	}
}

// TestR4Proxy: each combination, only what is set, only main containers.
func TestR4Proxy(t *testing.T) {
	b := load(t, "assets/x.yaml", ofKind("DaemonSet"), "bootstrap/x.yaml", ofKind("Pod"))
	for n := range 8 {
		p, want := &bundle.Proxy{}, map[string]string{}
		for bit, v := range []struct {
			name  string
			field *string
		}{{"HTTP_PROXY", &p.HTTP}, {"HTTPS_PROXY", &p.HTTPS}, {"NO_PROXY", &p.None}} {
			if n&(1<<bit) != 0 {
				*v.field = "value of " + v.name
				want[v.name] = *v.field
			}
		}
		r := render(t, b, bundle.Values{Proxy: p})
		for _, o := range r.Resources {
			if spec := bundle.PodSpec(o); spec != nil {
				for _, c := range spec.Containers {
					if diff := cmp.Diff(want, proxyOf(c)); diff != "" {
						t.Errorf("%d: %s %s: %s", n, o.GetName(), c.Name, diff)
					}
				}
				for _, c := range spec.InitContainers {
					if got := proxyOf(c); len(got) > 0 {
						t.Errorf("%d: init container %s has %v", n, c.Name, got)
					}
				}
			}
		}
		if got := proxyOf(find[*corev1.Pod](t, r.Bootstrap).Spec.Containers[0]); len(got) > 0 {
			t.Errorf("%d: the static Pod has %v", n, got)
		}
	}
	r := render(t, b, bundle.Values{})
	if got := proxyOf(find[*appsv1.Deployment](t, r.Resources).Spec.Template.Spec.Containers[0]); len(got) > 0 {
		t.Errorf("without a proxy there is %v", got)
	}
}

func proxyOf(c corev1.Container) map[string]string {
	got := map[string]string{}
	for _, e := range c.Env {
		if strings.HasSuffix(e.Name, "_PROXY") {
			got[e.Name] = e.Value
		}
	}
	return got
}

// TestNamespaceEverywhere keeps every installation to its own namespace.
func TestNamespaceEverywhere(t *testing.T) {
	rights := `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: x, namespace: openshift-cloud-controller-manager}
subjects:
- {kind: ServiceAccount, name: a}
- {kind: ServiceAccount, name: b, namespace: openshift-cloud-controller-manager}
- {kind: ServiceAccount, name: c, namespace: kube-system}
- {kind: User, name: "system:serviceaccount:openshift-cloud-controller-manager:d"}
- {kind: Group, name: "openshift-cloud-controller-manager-operator"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: system, namespace: kube-system}
data: {flag: "--x=openshift-cloud-controller-manager,openshift-cloud-controller-manager"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: elsewhere, namespace: mycloud-system}
subjects: [{kind: ServiceAccount, name: e, namespace: mycloud-system}]
`
	for _, flavor := range bundle.Flavors {
		r := render(t, load(t, "assets/x.yaml", rights), bundle.Values{Namespace: "mine", Flavor: flavor})
		var subjects []string
		for _, o := range r.Resources {
			if b, is := o.(interface{ GetNamespace() string }); is && !slices.Contains([]string{"mine", "kube-system", ""}, b.GetNamespace()) {
				t.Errorf("%s is in %s", o.GetName(), b.GetNamespace())
			}
		}
		subjects = subjectsOf(t, r.Resources)
		want := []string{"mine/a", "mine/b", "kube-system/c", "/system:serviceaccount:mine:d", "/openshift-cloud-controller-manager-operator", "mine/e"}
		if diff := cmp.Diff(want, subjects); diff != "" {
			t.Error(diff)
		}
		config := find[*corev1.ConfigMap](t, r.Resources)
		if config.Namespace != "kube-system" || config.Data["flag"] != "--x=mine,mine" {
			t.Errorf("%s %v", config.Namespace, config.Data)
		}
		script := strings.Join(append(find[*appsv1.Deployment](t, r.Resources).Spec.Template.Spec.Containers[0].Command, find[*appsv1.Deployment](t, r.Resources).Spec.Template.Spec.Containers[0].Args...), "\n")
		if !strings.Contains(script, "--leader-elect-resource-namespace=mine") || strings.Contains(script, "openshift-cloud") {
			t.Error(script)
		}
	}
	if _, err := load(t).Render(bundle.Values{Namespace: "Not/One", Images: images()}); err == nil {
		t.Error("a namespace that cannot be is taken")
	}
}

func subjectsOf(t *testing.T, objects []client.Object) (all []string) {
	t.Helper()
	for _, o := range objects {
		if b, is := o.(*rbacv1.RoleBinding); is && slices.Contains([]string{"x", "elsewhere"}, b.Name) {
			for _, s := range b.Subjects {
				all = append(all, s.Namespace+"/"+s.Name)
			}
		}
	}
	return all
}

// TestRenderingsShareNothing: who changes what he got changes nothing else.
func TestRenderingsShareNothing(t *testing.T) {
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: cloud-controller-manager}]}\n"
	b := load(t, "bootstrap/x.yaml", pod)
	first, second := render(t, b, bundle.Values{}), render(t, b, bundle.Values{})
	for _, o := range append(first.Resources, first.Bootstrap...) {
		o.SetName("changed")
		if spec := bundle.PodSpec(o); spec != nil {
			spec.Containers[0].Image = "changed"
		}
	}
	if diff := cmp.Diff(render(t, b, bundle.Values{}), second); diff != "" {
		t.Error(diff)
	}
}

// TestFlagsOfTheBase: in order, templates filled, empty ones left out, all of
// them one word of the shell.
func TestFlagsOfTheBase(t *testing.T) {
	with := strings.Replace(metadata, "program: /bin/my-ccm", `program: /bin/my-ccm
    featureGates: true
    flags: ["--a={{ .platform }}", "{{ with .additionalLabels }}--labels={{ . }}{{ end }}", "--controllers=*,-x", "--b=it's"]`, 1)
	b := load(t, "bundle.yaml", with)
	v := bundle.Values{Flavor: bundle.Kubernetes, FeatureGates: "A=true,B=true", TLSMinVersion: "VersionTLS12", TLSCipherSuites: "X,Y", InfrastructureName: "c-1"}
	got := find[*appsv1.Deployment](t, render(t, b, v).Resources).Spec.Template.Spec.Containers[0]
	want := []string{
		"--v=2", "--cloud-provider=my", "--cluster-name=c-1", "--use-service-account-credentials=true", "--configure-cloud-routes=false", "--leader-elect=true",
		"--leader-elect-lease-duration=137s", "--leader-elect-renew-deadline=107s", "--leader-elect-retry-period=26s",
		"--leader-elect-resource-namespace=openshift-cloud-controller-manager", "--feature-gates=A=true,B=true", "--tls-min-version=VersionTLS12",
		"--tls-cipher-suites=X,Y", "--a=My", "--controllers=*,-x", "--b=it's",
	}
	if diff := cmp.Diff(want, got.Args); diff != "" || !slices.Equal(got.Command, []string{"/bin/my-ccm"}) {
		t.Error(got.Command, diff)
	}
	script := find[*appsv1.Deployment](t, render(t, b, bundle.Values{AdditionalLabels: "k=v"}).Resources).Spec.Template.Spec.Containers[0].Command[2]
	for _, line := range []string{"exec /bin/my-ccm \\\n", " --labels=k=v \\\n", " '--controllers=*,-x' \\\n", ` '--b=it'\''s'`} {
		if !strings.Contains(script, line) {
			t.Errorf("the script lacks %q:\n%s", line, script)
		}
	}
	if strings.Contains(script, "feature-gates") || strings.Contains(script, "tls-") {
		t.Errorf("the script has flags without values:\n%s", script)
	}
}

// TestSingleReplica has one of each, whatever the manifest says.
func TestSingleReplica(t *testing.T) {
	b := load(t, "assets/deployment.yaml", onBase+"spec: {replicas: 5}\n")
	for single, want := range map[bool]struct {
		replicas int32
		kinds    []string
	}{
		false: {5, []string{"PodDisruptionBudget", "Service", "Deployment"}},
		true:  {1, []string{"Service", "Deployment"}},
	} {
		objects := render(t, b, bundle.Values{SingleReplica: single}).Resources
		if got := *find[*appsv1.Deployment](t, objects).Spec.Replicas; got != want.replicas {
			t.Errorf("single replica %t: %d replicas", single, got)
		}
		var kinds []string
		for _, o := range objects {
			kinds = append(kinds, o.GetObjectKind().GroupVersionKind().Kind)
			if strings.HasPrefix(o.GetName(), "my-") == false {
				t.Error(o.GetName())
			}
		}
		if diff := cmp.Diff(want.kinds, kinds); diff != "" {
			t.Error(diff)
		}
	}
}

// TestFoldersOfFlavors are rendered for one kind of cluster only.
func TestFoldersOfFlavors(t *testing.T) {
	config := func(name string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
	}
	b := load(t, "assets/c.yaml", config("both"), "openshift/c.yaml", config("openshift"), "kubernetes/c.yaml", config("kubernetes"))
	for _, flavor := range bundle.Flavors {
		var names []string
		for _, o := range render(t, b, bundle.Values{Flavor: flavor}).Resources {
			if _, is := o.(*corev1.ConfigMap); is {
				names = append(names, o.GetName())
			}
		}
		if diff := cmp.Diff([]string{"both", string(flavor)}, names); diff != "" {
			t.Error(diff)
		}
	}
	only := load(t, "bundle.yaml", metadata+"flavors: [kubernetes]\n")
	if _, err := only.Render(bundle.Values{Images: images()}); err == nil || !strings.Contains(err.Error(), "not for openshift clusters") {
		t.Errorf("the error is %v", err)
	}
	if _, err := only.Render(bundle.Values{Images: images(), Flavor: "k3s"}); err == nil || !strings.Contains(err.Error(), `flavor "k3s"`) {
		t.Errorf("the error is %v", err)
	}
}

// TestAdditionsToABase are merged by name, and the annotation is gone.
func TestAdditionsToABase(t *testing.T) {
	addition := strings.Replace(onBase, "annotations:\n", "annotations:\n    mine: stays\n", 1) + `spec:
  template:
    spec:
      containers:
      - name: cloud-controller-manager
        env: [{name: A, value: b}]
        volumeMounts: [{name: more, mountPath: /more}]
      - name: sidecar
        image: side/car:1
      volumes: [{name: more, emptyDir: {}}]
`
	d := find[*appsv1.Deployment](t, render(t, load(t, "assets/deployment.yaml", addition), bundle.Values{}).Resources)
	if diff := cmp.Diff(map[string]string{"mine": "stays"}, d.Annotations); diff != "" {
		t.Error(diff)
	}
	spec := d.Spec.Template.Spec
	names := []string{}
	for _, c := range spec.Containers {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"cloud-controller-manager", "sidecar"}) || len(spec.Volumes) != 3 || !spec.HostNetwork {
		t.Errorf("%v %v", names, spec.Volumes)
	}
}

// TestPodsComeLast, and accounts first: a Deployment whose account is not there yet
// waits for longer and longer.
func TestPodsComeLast(t *testing.T) {
	objects := render(t, load(t), bundle.Values{Flavor: bundle.Kubernetes, Images: images()}).Resources
	_, first := objects[0].(*corev1.ServiceAccount)
	_, last := objects[len(objects)-1].(*appsv1.Deployment)
	if !first || !last {
		t.Errorf("%T is first, %T is last", objects[0], objects[len(objects)-1])
	}
}

// TestAccountsOfTheBundle take the place of those that each platform gets, and
// nothing else does.
func TestAccountsOfTheBundle(t *testing.T) {
	const account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: cloud-controller-manager, annotations: {example.test/role: nodes}}\n"
	b := load(t, "kubernetes/account.yaml", account)
	r := render(t, b, bundle.Values{Flavor: bundle.Kubernetes, Namespace: "here", Images: images()})
	var found []map[string]string
	for _, o := range r.Resources {
		if _, is := o.(*corev1.ServiceAccount); is && o.GetName() == "cloud-controller-manager" && o.GetNamespace() == "here" {
			found = append(found, o.GetAnnotations())
		}
	}
	if len(found) != 1 || found[0]["example.test/role"] != "nodes" {
		t.Errorf("the accounts' annotations are %v", found)
	}
	_, err := load(t, "kubernetes/accounts.yaml", account+"---\n"+account).Render(bundle.Values{Flavor: bundle.Kubernetes, Namespace: "here", Images: images()})
	if err == nil || !strings.Contains(err.Error(), "ServiceAccount here/cloud-controller-manager is there twice") {
		t.Errorf("two of the bundle: error %v", err)
	}
}
