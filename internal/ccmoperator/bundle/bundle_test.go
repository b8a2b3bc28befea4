// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/ccmoperator/bundle"
)

const metadata = `apiVersion: ccm.outrigger.dev/v1alpha1
kind: Bundle
platform: My
provider: my
containers:
  cloud-controller-manager:
    image: cloudControllerManagerMy
    program: /bin/my-ccm
  cloud-node-manager:
    image: cloudNodeManagerMy
    program: /bin/my-cnm
`

const onBase = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: my-cloud-controller-manager
  annotations:
    ccm.outrigger.dev/base: cloud-controller-manager
`

const plain = `apiVersion: v1
kind: ConfigMap
metadata: {name: x}
`

// files are a bundle; an odd number of words is not a bundle.
func files(pairs ...string) fstest.MapFS {
	all := fstest.MapFS{"bundle.yaml": {Data: []byte(metadata)}, "assets/deployment.yaml": {Data: []byte(onBase)}}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			delete(all, pairs[i])
			continue
		}
		all[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return all
}

func images() bundle.Images {
	return bundle.Images{"cloudControllerManagerMy": "r/ccm:1", "cloudNodeManagerMy": "r/cnm:1", "other": "r/other:1"}
}

func load(t *testing.T, pairs ...string) *bundle.Bundle {
	t.Helper()
	b, err := bundle.Load("my", files(pairs...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func render(t *testing.T, b *bundle.Bundle, v bundle.Values) *bundle.Rendered {
	t.Helper()
	if v.Images == nil {
		v.Images = images()
	}
	r, err := b.Render(v)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func find[T client.Object](t *testing.T, objects []client.Object) T {
	t.Helper()
	for _, o := range objects {
		if found, is := o.(T); is {
			return found
		}
	}
	var none T
	t.Fatalf("there is no %T", none)
	return none
}

// TestR3BadFolders are told when a bundle is read.
func TestR3BadFolders(t *testing.T) {
	change := func(from, to string) string { return strings.Replace(metadata, from, to, 1) }
	for name, test := range map[string]struct{ file, text, want string }{
		"no metadata":            {"bundle.yaml", "", "bundle my: bundle.yaml: missing"},
		"no manifests":           {"assets/deployment.yaml", "", "assets: no manifests"},
		"unknown field":          {"bundle.yaml", metadata + "spec: {}\n", `bundle.yaml: error unmarshaling JSON: while decoding JSON: json: unknown field "spec"`},
		"key twice":              {"bundle.yaml", metadata + "provider: my\n", `key "provider" already set in map`},
		"not YAML":               {"bundle.yaml", "\t", "bundle.yaml: error converting YAML"},
		"another kind":           {"bundle.yaml", change("kind: Bundle", "kind: Pod"), `kind "Pod"`},
		"no platform":            {"bundle.yaml", change("platform: My", ""), "platform: missing"},
		"platform with a space":  {"bundle.yaml", change("platform: My", "platform: My cloud"), `platform "My cloud"`},
		"no provider":            {"bundle.yaml", change("provider: my", ""), `provider ""`},
		"unknown flavor":         {"bundle.yaml", metadata + "flavors: [k3s]\n", `flavors: "k3s": want openshift or kubernetes`},
		"unknown format":         {"bundle.yaml", metadata + "configFormat: none\n", `configFormat "none"`},
		"no containers":          {"bundle.yaml", metadata[:strings.Index(metadata, "containers:")], "containers: missing"},
		"no image key":           {"bundle.yaml", change("image: cloudNodeManagerMy", ""), "containers.cloud-node-manager.image: missing"},
		"relative configuration": {"bundle.yaml", change("program: /bin/my-ccm", "cloudConfig: cloud.conf"), "containers.cloud-controller-manager.cloudConfig"},
		"bad flag":               {"bundle.yaml", change("program: /bin/my-ccm", "flags: ['{{ .x']"), "containers.cloud-controller-manager.flags[0]: line 1: unclosed action"},
		"bad template":           {"assets/x.yaml.tmpl", "a: 1\nb: {{ if }}\n", "assets/x.yaml.tmpl: line 2: missing value for if"},
		"another folder":         {"manifests/x.yaml", plain, "manifests: neither bundle.yaml nor one of the folders"},
		"another ending":         {"assets/x.txt", plain, "assets/x.txt: want a file that ends in .yaml"},
		"a binary":               {"assets/x.yaml", "\xff\xfe", "assets/x.yaml: not UTF-8"},
		"too large":              {"assets/x.yaml", strings.Repeat("#", 1<<20+1), "assets/x.yaml: 1048577 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bundle.Load("my", files(test.file, test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

// TestR3BadManifests are told when a bundle is rendered, with file and key.
func TestR3BadManifests(t *testing.T) {
	for name, test := range map[string]struct{ file, text, want string }{
		"unknown base":        {"assets/deployment.yaml", strings.Replace(onBase, ": cloud-controller-manager\n", ": none\n", 1), `assets/deployment.yaml: base "none" is not known; known are cloud-controller-manager, cloud-`},
		"base of another":     {"assets/deployment.yaml", strings.Replace(onBase, "kind: Deployment", "kind: DaemonSet", 1), "base cloud-controller-manager is a Deployment of apps/v1, this is a DaemonSet"},
		"missing value":       {"assets/x.yaml.tmpl", plain + "data: {a: '{{ .nothing }}'}\n", `assets/x.yaml.tmpl: line 4:14: at <.nothing>: map has no entry for key "nothing"`},
		"missing image value": {"assets/x.yaml.tmpl", plain + "data: {a: '{{ .images.None }}'}\n", `map has no entry for key "None"`},
		"unknown field":       {"assets/x.yaml", plain + "spec: {}\n", `assets/x.yaml: ConfigMap x: json: unknown field "spec"`},
		"unknown addition":    {"assets/deployment.yaml", onBase + "spec: {template: {spec: {hostnetwork2: true}}}\n", `json: unknown field "hostnetwork2"`},
		"not YAML":            {"assets/x.yaml", "a: b: c", "assets/x.yaml: document 1: yaml: mapping values are not allowed in this context"},
		"number as text":      {"assets/x.yaml", plain + "data: {a: 1}\n", "assets/x.yaml: ConfigMap x: json: cannot unmarshal number into Go struct field ConfigMap.data of type string"},
		"no object":           {"assets/x.yaml", "[1]", "assets/x.yaml: document 1: not a manifest"},
		"no kind":             {"assets/x.yaml", "a: 1", "document 1: not a manifest: apiVersion and kind are missing"},
		"second document":     {"assets/x.yaml", plain + "---\nkind: 1", "assets/x.yaml: document 2"},
		"key twice":           {"assets/x.yaml", plain + "kind: ConfigMap\n", `key "kind" already set in map`},
		"no name":             {"assets/x.yaml", "apiVersion: v1\nkind: ConfigMap\n", "ConfigMap: metadata.name: missing"},
		"unknown kind":        {"assets/x.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n", "assets/x.yaml: kind Secret of v1 is none that a bundle may have"},
		"twice":               {"assets/x.yaml", plain + "---\n" + plain, "ConfigMap openshift-cloud-controller-manager/x is there twice"},
		"another namespace":   {"assets/x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: other}\n", `assets/x.yaml: ConfigMap x: metadata.namespace "other"`},
		"the operator's":      {"assets/x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: openshift-cloud-controller-manager-operator}\n", `metadata.namespace "openshift-cloud-controller-manager-operator"`},
		"subject of another":  {"assets/x.yaml", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: x}\nsubjects: [{kind: ServiceAccount, name: x, namespace: other}]\n", `subjects[0].namespace "other"`},
		"namespace of none":   {"assets/x.yaml", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: x, namespace: mine}\n", "the kind has none"},
		"a Pod":               {"assets/x.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n", "Pod x: nobody would start it again"},
		"a Deployment":        {"bootstrap/x.yaml", onBase, "only Pods and ConfigMaps can be there"},
		"no image":            {"assets/x.yaml", onBase + "spec: {template: {spec: {containers: [{name: other}]}}}\n", "container other has no image"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, test.file, test.text).Render(bundle.Values{Images: images()})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

func TestAllFaultsAreToldAtOnce(t *testing.T) {
	_, err := load(t, "assets/x.yaml", "a: 1", "assets/y.yaml", "b: 1").Render(bundle.Values{Images: images()})
	if err == nil || !strings.Contains(err.Error(), "assets/x.yaml") || !strings.Contains(err.Error(), "assets/y.yaml") {
		t.Errorf("the error is %v", err)
	}
}

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
			if got := find[*appsv1.Deployment](t, r.GetResources()).Spec.Template.Spec.Containers[0].Image; got != "a" {
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
		for _, o := range append(r.GetResources(), r.GetBootstrapResources()...) {
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
		for _, o := range r.GetResources() {
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
		if got := proxyOf(find[*corev1.Pod](t, r.GetBootstrapResources()).Spec.Containers[0]); len(got) > 0 {
			t.Errorf("%d: the static Pod has %v", n, got)
		}
	}
	r := render(t, b, bundle.Values{})
	if got := proxyOf(find[*appsv1.Deployment](t, r.GetResources()).Spec.Template.Spec.Containers[0]); len(got) > 0 {
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
`
	for _, flavor := range bundle.Flavors {
		r := render(t, load(t, "assets/x.yaml", rights), bundle.Values{Namespace: "mine", Flavor: flavor})
		var subjects []string
		for _, o := range r.GetResources() {
			if b, is := o.(interface{ GetNamespace() string }); is && !slices.Contains([]string{"mine", "kube-system", ""}, b.GetNamespace()) {
				t.Errorf("%s is in %s", o.GetName(), b.GetNamespace())
			}
		}
		subjects = subjectsOf(t, r.GetResources())
		want := []string{"mine/a", "mine/b", "kube-system/c", "/system:serviceaccount:mine:d", "/openshift-cloud-controller-manager-operator"}
		if diff := cmp.Diff(want, subjects); diff != "" {
			t.Error(diff)
		}
		config := find[*corev1.ConfigMap](t, r.GetResources())
		if config.Namespace != "kube-system" || config.Data["flag"] != "--x=mine,mine" {
			t.Errorf("%s %v", config.Namespace, config.Data)
		}
		script := strings.Join(append(find[*appsv1.Deployment](t, r.GetResources()).Spec.Template.Spec.Containers[0].Command, find[*appsv1.Deployment](t, r.GetResources()).Spec.Template.Spec.Containers[0].Args...), "\n")
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
		if b, is := o.(*rbacv1.RoleBinding); is && b.Name == "x" {
			for _, s := range b.Subjects {
				all = append(all, s.Namespace+"/"+s.Name)
			}
		}
	}
	return all
}

// TestGetResourcesAreCopies: who changes what he got changes nothing else.
func TestGetResourcesAreCopies(t *testing.T) {
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: cloud-controller-manager}]}\n"
	r := render(t, load(t, "bootstrap/x.yaml", pod), bundle.Values{})
	for what, get := range map[string]func() []client.Object{"resources": r.GetResources, "bootstrap": r.GetBootstrapResources} {
		first := get()
		want := get()
		for _, o := range first {
			o.SetName("changed")
			if spec := bundle.PodSpec(o); spec != nil {
				spec.Containers[0].Image = "changed"
			}
		}
		if diff := cmp.Diff(want, get()); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
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
	got := find[*appsv1.Deployment](t, render(t, b, v).GetResources()).Spec.Template.Spec.Containers[0]
	want := []string{
		"--v=2", "--cloud-provider=my", "--cluster-name=c-1", "--use-service-account-credentials=true", "--configure-cloud-routes=false", "--leader-elect=true",
		"--leader-elect-lease-duration=137s", "--leader-elect-renew-deadline=107s", "--leader-elect-retry-period=26s",
		"--leader-elect-resource-namespace=openshift-cloud-controller-manager", "--feature-gates=A=true,B=true", "--tls-min-version=VersionTLS12",
		"--tls-cipher-suites=X,Y", "--a=My", "--controllers=*,-x", "--b=it's",
	}
	if diff := cmp.Diff(want, got.Args); diff != "" || !slices.Equal(got.Command, []string{"/bin/my-ccm"}) {
		t.Error(got.Command, diff)
	}
	script := find[*appsv1.Deployment](t, render(t, b, bundle.Values{AdditionalLabels: "k=v"}).GetResources()).Spec.Template.Spec.Containers[0].Command[2]
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
		false: {5, []string{"Deployment", "PodDisruptionBudget", "Service"}},
		true:  {1, []string{"Deployment", "Service"}},
	} {
		objects := render(t, b, bundle.Values{SingleReplica: single}).GetResources()
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
		for _, o := range render(t, b, bundle.Values{Flavor: flavor}).GetResources() {
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

// TestConfigMapIsABundle as its folder is.
func TestConfigMapIsABundle(t *testing.T) {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "my"},
		Data:       map[string]string{"bundle.yaml": metadata, "assets.deployment.yaml": onBase, "assets.x.yaml.tmpl": plain + "data: {a: '{{ .platform }}'}\n"},
	}
	b, err := bundle.LoadConfigMap(cm)
	if err != nil {
		t.Fatal(err)
	}
	folder := load(t, "assets/x.yaml.tmpl", plain+"data: {a: '{{ .platform }}'}\n")
	if diff := cmp.Diff(render(t, folder, bundle.Values{}).GetResources(), render(t, b, bundle.Values{}).GetResources()); diff != "" {
		t.Error(diff)
	}
	mounted := load(t, "assets/deployment.yaml", "", "assets.deployment.yaml", onBase, "assets.x.yaml.tmpl", cm.Data["assets.x.yaml.tmpl"], "..data/bundle.yaml", "x")
	if diff := cmp.Diff(b.Files(), mounted.Files()); diff != "" {
		t.Error(diff)
	}
	for key, want := range map[string]string{"bundle.yaml": "key bundle.yaml: missing", "assets.deployment.yaml": "assets: no manifests"} {
		lacks := cm.DeepCopy()
		maps.DeleteFunc(lacks.Data, func(k, _ string) bool { return k == key || key != "bundle.yaml" && k != "bundle.yaml" })
		if _, err := bundle.LoadConfigMap(lacks); err == nil || !strings.Contains(err.Error(), "bundle of ConfigMap ns/my: "+want) {
			t.Errorf("the error is %v", err)
		}
	}
	cm.Data["other"] = "x"
	if _, err := bundle.LoadConfigMap(cm); err == nil || !strings.Contains(err.Error(), "key other: want bundle.yaml") {
		t.Errorf("the error is %v", err)
	}
}

func TestSets(t *testing.T) {
	of := func(name, more string) *bundle.Bundle {
		b, err := bundle.Load(name, files("bundle.yaml", metadata+more))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	general, stack, only := of("my", ""), of("stack", "cloudName: Stack\n"), of("k", "flavors: [kubernetes]\n")
	set := bundle.Set{stack, general}
	for _, test := range []struct {
		set             bundle.Set
		platform, cloud string
		flavor          bundle.Flavor
		want            *bundle.Bundle
	}{
		{set, "My", "", bundle.OpenShift, general},
		{set, "my", "Public", bundle.OpenShift, general},
		{set, "My", "Stack", bundle.OpenShift, stack},
		{set, "Other", "", bundle.OpenShift, nil},
		{bundle.Set{only}, "My", "", bundle.OpenShift, nil},
		{bundle.Set{only}, "My", "", bundle.Kubernetes, only},
		{set.With(only), "My", "", bundle.Kubernetes, only},
		{set.With(only), "My", "Stack", bundle.Kubernetes, stack},
	} {
		if got := test.set.Find(test.platform, test.cloud, test.flavor); got != test.want {
			t.Errorf("%s %s %s: %v", test.platform, test.cloud, test.flavor, got)
		}
	}
	if _, err := set.Named("nobody"); err == nil || err.Error() != `no bundle is named "nobody"; there are my, stack` {
		t.Errorf("the error is %v", err)
	}
	two := fstest.MapFS{}
	for name, f := range files() {
		two["one/"+name], two["two/"+name] = f, f
	}
	if _, err := bundle.LoadSet(two); err == nil || !strings.Contains(err.Error(), `bundles one and two are both for platform My, cloud name ""`) {
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
	d := find[*appsv1.Deployment](t, render(t, load(t, "assets/deployment.yaml", addition), bundle.Values{}).GetResources())
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
