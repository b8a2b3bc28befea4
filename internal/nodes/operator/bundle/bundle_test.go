// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
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

func render(t *testing.T, b *bundle.Bundle, v bundle.Values) bundle.Rendered {
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
		"case of a field":        {"bundle.yaml", metadata + "ConfigFormat: aws\n", `json: unknown field "ConfigFormat"`},
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
		"another folder":         {"manifests/x.yaml", plain, "manifests: want bundle.yaml or, in one of the folders assets,"},
		"another ending":         {"assets/x.txt", plain, "assets/x.txt: want bundle.yaml or, in one of the folders"},
		"a binary":               {"assets/x.yaml", "\xff\xfe", "assets/x.yaml: not UTF-8"},
		"large metadata":         {"bundle.yaml", metadata + strings.Repeat("#", 1<<20), "bundle.yaml: 1048"},
		"binary metadata":        {"bundle.yaml", "\xff\xfe", "bundle.yaml: not UTF-8"},
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
		"unknown addition":    {"assets/deployment.yaml", onBase + "spec: {template: {spec: {hostnetwork2: true}}}\n", `json: unknown field "spec.template.spec.hostnetwork2"`},
		"case of a field":     {"assets/deployment.yaml", onBase + "spec: {template: {spec: {hostnetwork: true}}}\n", `json: unknown field "spec.template.spec.hostnetwork"`},
		"not YAML":            {"assets/x.yaml", "a: b: c", "assets/x.yaml: document 1: yaml: mapping values are not allowed in this context"},
		"number as text":      {"assets/x.yaml", plain + "data: {a: 1}\n", "assets/x.yaml: ConfigMap x: json: cannot unmarshal number into Go struct field ConfigMap.data of type string"},
		"no object":           {"assets/x.yaml", "[1]", "assets/x.yaml: document 1: not a manifest"},
		"no kind":             {"assets/x.yaml", "a: 1", "document 1: not a manifest: apiVersion and kind are missing"},
		"second document":     {"assets/x.yaml", plain + "---\nkind: 1", "assets/x.yaml: document 2"},
		"key twice":           {"assets/x.yaml", plain + "kind: ConfigMap\n", `key "kind" already set in map`},
		"no name":             {"assets/x.yaml", "apiVersion: v1\nkind: ConfigMap\n", "ConfigMap: metadata.name: missing"},
		"unknown kind":        {"assets/x.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n", "assets/x.yaml: kind Secret of v1 is none that a bundle may have"},
		"twice":               {"assets/x.yaml", plain + "---\n" + plain, "ConfigMap openshift-cloud-controller-manager/x is there twice, in assets/x.yaml"},
		"subject of another":  {"assets/x.yaml", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: x}\nsubjects: [{kind: ServiceAccount, name: x, namespace: other}]\n", `subjects[0].namespace "other"`},
		"namespace of none":   {"assets/x.yaml", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: x, namespace: mine}\n", "the kind has none"},
		"a Pod":               {"assets/x.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n", "Pod x: nobody would start it again"},
		"a Deployment":        {"bootstrap/x.yaml", onBase, "only Pods and ConfigMaps can be there"},
		"ours twice":          {"assets/x.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: my-cloud-controller-manager}\n", "is there twice, in assets/x.yaml and in what each platform gets"},
		"a template's flood":  {"assets/x.yaml.tmpl", plain + "data: {a: '{{ range 200000 }}flood {{ end }}'}\n", "it makes more than 1048576 bytes"},
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
	if diff := cmp.Diff(render(t, folder, bundle.Values{}).Resources, render(t, b, bundle.Values{}).Resources); diff != "" {
		t.Error(diff)
	}
	mounted := load(t, "assets/deployment.yaml", "", "assets.deployment.yaml", onBase, "assets.x.yaml.tmpl", cm.Data["assets.x.yaml.tmpl"], "..data/bundle.yaml", "x")
	if diff := cmp.Diff(b.Files(), mounted.Files()); diff != "" {
		t.Error(diff)
	}
	for key, want := range map[string]string{"bundle.yaml": "bundle.yaml: missing", "assets.deployment.yaml": "assets: no manifests"} {
		lacks := cm.DeepCopy()
		maps.DeleteFunc(lacks.Data, func(k, _ string) bool { return k == key || key != "bundle.yaml" && k != "bundle.yaml" })
		if _, err := bundle.LoadConfigMap(lacks); err == nil || !strings.Contains(err.Error(), "bundle of ConfigMap ns/my: "+want) {
			t.Errorf("the error is %v", err)
		}
	}
	cm.Data["other"] = "x"
	if _, err := bundle.LoadConfigMap(cm); err == nil || !strings.Contains(err.Error(), "other: want bundle.yaml") {
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
