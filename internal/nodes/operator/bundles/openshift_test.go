// SPDX-License-Identifier: Apache-2.0

package bundles

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

// factsFile has what OpenShift's own operator makes of the values of [factValues].
const factsFile = "testdata/openshift.yaml"

// rendered is for those who compare with another commit: its objects as JSON, lists in
// files named PLATFORM.one.few.json and so on, become the facts.
var rendered = flag.String("rendered", "", "make "+factsFile+" of the lists of objects in this folder")

// facts are by bundle and object, such as "Role kube-system/x".
type facts struct {
	Commit    string                     `json:"commit"`
	Platforms map[string]map[string]fact `json:"platforms"`
}

// fact is what one object is. The sums tell whether it is the same; the lists say
// where it is not.
type fact struct {
	Flags  []string `json:"flags,omitempty"`
	Fields []string `json:"fields,omitempty"`
	// Few and All are the sums of the pods' template with the fewest values and with
	// all, Two and One those of all else with two replicas and with one.
	Few string `json:"few,omitempty"`
	All string `json:"all,omitempty"`
	Two string `json:"two,omitempty"`
	One string `json:"one,omitempty"`
}

// ours are the objects that differ on purpose, with the reason. Their names are those
// of OpenShift's operator: each has the other's place.
var ours = map[string]string{
	"ValidatingAdmissionPolicy openshift-cloud-controller-manager-cloud-provider-aws":                  "a Service that becomes a load balancer, or is none any more, may be given the annotation or lose it",
	"ValidatingAdmissionPolicy azure-load-balancer-tcp-idle-timeout-annotation-validation-policy":      "more than three digits are refused with a sentence, not with an error of the expression",
	"ValidatingAdmissionPolicy openshift-cloud-controller-manager-cloud-provider-azure-node-admission": "the Node's status is guarded too",
	"ValidatingAdmissionPolicy network-tier-annotation-validation-policy":                              "says what is wrong in our words",
}

// factValues are the values of the comparison, which the table was made with.
func factValues(b *bundle.Bundle, single, all bool) bundle.Values {
	v := bundle.Values{Images: images(b), InfrastructureName: "cluster-x7k2p", SingleReplica: single}
	if all {
		v.Proxy = &bundle.Proxy{HTTP: "http://proxy.example:3128", HTTPS: "http://proxy.example:3128", None: ".cluster.local"}
		v.FeatureGates, v.TLSMinVersion, v.TLSCipherSuites = "A=true", "VersionTLS12", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
		if b.Name == "vsphere" {
			v.AdditionalLabels = "node.openshift.io/platform-type=vsphere"
		}
	}
	return v
}

// TestOpenShiftsOperatorMakesTheSame: whoever takes the place of the other restarts
// nothing, since no template of pods changes, and leaves nothing, since no object has
// another name. The table has sums and facts of what the other makes, and no text of it.
func TestOpenShiftsOperatorMakesTheSame(t *testing.T) {
	if *rendered != "" {
		writeFacts(t)
	}
	text, err := os.ReadFile(factsFile)
	if err != nil {
		t.Fatal(err)
	}
	var want facts
	if err := yaml.UnmarshalStrict(text, &want); err != nil {
		t.Fatal(err)
	}
	if len(want.Commit) != 40 || len(want.Platforms) != 9 {
		t.Fatalf("commit %q, %d platforms", want.Commit, len(want.Platforms))
	}
	for name, objects := range want.Platforms {
		b, err := set(t).Named(name)
		if err != nil {
			t.Fatal(err)
		}
		is := factsOf(t, func(single, all bool) []*unstructured.Unstructured { return plain(t, b, factValues(b, single, all)) })
		if diff := cmp.Diff(slices.Sorted(maps.Keys(objects)), slices.Sorted(maps.Keys(is))); diff != "" {
			t.Errorf("%s: objects: %s", name, diff)
		}
		for object, f := range objects {
			diff := cmp.Diff(f, is[object])
			if reason := ours[object]; reason != "" && diff == "" {
				t.Errorf("%s: %s is the same; the table says that it differs: %s", name, object, reason)
			} else if reason == "" && diff != "" {
				t.Errorf("%s: %s, which is to be as the other operator makes it: %s", name, object, diff)
			}
		}
	}
}

// writeFacts makes the table of another rendering.
func writeFacts(t *testing.T) {
	commit, err := os.ReadFile(filepath.Join(*rendered, "commit"))
	if err != nil {
		t.Fatal(err)
	}
	all := facts{Commit: strings.TrimSpace(string(commit)), Platforms: map[string]map[string]fact{}}
	for _, b := range set(t) {
		if !b.For(bundle.OpenShift) || b.Name == "alibabacloud" {
			continue
		}
		all.Platforms[b.Name] = factsOf(t, func(single, full bool) []*unstructured.Unstructured { return read(t, b.Name, single, full) })
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	const head = "# SPDX-License-Identifier: Apache-2.0\n#\n# What OpenShift's own operator makes at this commit of the values in openshift_test.go:\n# lists of facts, and sums of what it deploys. `go test -run OpenShiftsOperator -rendered FOLDER` writes it.\n"
	if err := os.WriteFile(factsFile, []byte(head+string(text)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// read is the list of objects in a file.
func read(t *testing.T, platform string, single, all bool) (list []*unstructured.Unstructured) {
	replicas, values := "two", "few"
	if single {
		replicas = "one"
	}
	if all {
		values = "all"
	}
	text, err := os.ReadFile(filepath.Join(*rendered, platform+"."+replicas+"."+values+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var fields []map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		list = append(list, &unstructured.Unstructured{Object: f})
	}
	return list
}

// plain are the objects of a bundle as JSON has them.
func plain(t *testing.T, b *bundle.Bundle, v bundle.Values) (list []*unstructured.Unstructured) {
	t.Helper()
	objects, err := b.Resources(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		list = append(list, asJSON(t, o))
	}
	return list
}

func asJSON(t *testing.T, o client.Object) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// factsOf are those of all objects of a platform. What does not depend on a value has
// to be the same with all of them.
func factsOf(t *testing.T, made func(single, all bool) []*unstructured.Unstructured) map[string]fact {
	t.Helper()
	found := map[string]fact{}
	for _, single := range []bool{false, true} {
		for _, all := range []bool{false, true} {
			for _, o := range made(single, all) {
				name := o.GetKind() + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
				name = strings.Replace(name, bundle.DefaultNamespace+"/", "", 1)
				f := found[name]
				template, rest := canonical(o)
				if template != nil {
					sum, flags := &f.Few, flagsOf(o)
					if all {
						sum = &f.All
					} else {
						f.Flags, f.Fields = flags, fieldsOf("", template)
					}
					keep(t, name, sum, template)
				}
				if single {
					keep(t, name, &f.One, rest)
				} else {
					keep(t, name, &f.Two, rest)
				}
				found[name] = f
			}
		}
	}
	return found
}

// keep notes a sum, which another value must not change.
func keep(t *testing.T, name string, in *string, of any) {
	t.Helper()
	text, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.Sum256(text)
	sum := hex.EncodeToString(h[:])
	if *in != "" && *in != sum {
		t.Errorf("%s depends on a value of which it should not", name)
	}
	*in = sum
}

// canonical is the template of pods, if there is one, and all else, without what of a
// Service an API server fills itself, and without annotations of the object.
func canonical(o *unstructured.Unstructured) (template map[string]any, rest map[string]any) {
	all := dropped(runtime.DeepCopyJSON(o.Object)).(map[string]any)
	template, _, _ = unstructured.NestedMap(all, "spec", "template")
	unstructured.RemoveNestedField(all, "spec", "template")
	for _, field := range []string{"apiVersion", "status"} {
		delete(all, field)
	}
	unstructured.RemoveNestedField(all, "metadata", "annotations")
	if o.GetKind() == "Service" {
		unstructured.RemoveNestedField(all, "spec", "sessionAffinity")
		ports, _, _ := unstructured.NestedSlice(all, "spec", "ports")
		for _, p := range ports {
			delete(p.(map[string]any), "protocol")
			delete(p.(map[string]any), "targetPort")
		}
		unstructured.SetNestedSlice(all, ports, "spec", "ports")
	}
	return template, all
}

// dropped is a value without fields that are null or not there; an emptyDir is.
func dropped(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			fields, isMap := dropped(field).(map[string]any)
			if field == nil || isMap && len(fields) == 0 && key != "emptyDir" {
				delete(v, key)
			}
		}
	case []any:
		for i := range v {
			v[i] = dropped(v[i])
		}
	}
	return value
}

// flagsOf are the flags that scripts and arguments of all containers have.
func flagsOf(o *unstructured.Unstructured) (flags []string) {
	for _, kind := range []string{"initContainers", "containers"} {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", kind)
		for _, c := range containers {
			c := c.(map[string]any)
			for _, list := range []any{c["command"], c["args"]} {
				words, _ := list.([]any)
				for _, w := range words {
					flags = append(flags, dashed(fmt.Sprint(c["name"]), w.(string))...)
				}
			}
		}
	}
	return flags
}

func dashed(container, text string) (flags []string) {
	for _, word := range strings.Fields(text) {
		if strings.HasPrefix(word, "-") && len(word) > 2 {
			flags = append(flags, container+" "+word)
		}
	}
	return flags
}

// shown are the fields that are in the table: names, and what pods want of a node.
var shown = []string{"name", "key", "containerPort", "cpu", "memory", "mountPath", "terminationGracePeriodSeconds", "tolerationSeconds"}

// fieldsOf are those fields of a template with their values, in order.
func fieldsOf(at string, value any) (all []string) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			all = append(all, fieldsOf(strings.TrimPrefix(at+"."+key, "."), v[key])...)
		}
	case []any:
		for _, one := range v {
			all = append(all, fieldsOf(at, one)...)
		}
	default:
		if slices.Contains(shown, at[strings.LastIndex(at, ".")+1:]) {
			all = append(all, fmt.Sprintf("%s=%v", strings.TrimPrefix(at, "spec."), v))
		}
	}
	return all
}
