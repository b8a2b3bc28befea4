// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestChartAndOverlaysAreTheSame holds a chart variant against the overlay of
// its name. They differ in what normal leaves out, and in nothing else.
func TestChartAndOverlaysAreTheSame(t *testing.T) {
	for _, name := range folders(t, "deploy/overlays") {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(variants(t), name) {
				t.Fatalf("there is no testdata/values/%s.yaml that says the same as the overlay", name)
			}
			byOverlay, byChart := normal(parse(t, overlay(t, name))), normal(parse(t, chart(t, name)))
			for _, object := range []string{"ConfigMap peer-pods-cm", "Secret peer-pods-secret"} {
				fillIn(byOverlay[object], byChart[object])
			}
			if diff := cmp.Diff(byOverlay, byChart); diff != "" {
				t.Errorf("overlay (-) and chart (+) differ:\n%s", diff)
			}
		})
	}
}

// fillIn does what a user does: keys of the overlay that are empty get the
// values that the chart has, which takes no empty ones.
func fillIn(overlay, chart any) {
	to, _ := overlay.(map[string]any)["data"].(map[string]any)
	from, _ := chart.(map[string]any)["data"].(map[string]any)
	for key, value := range to {
		if filled, there := from[key]; value == "" && there {
			to[key] = filled
		}
	}
}

// TestComponentsAreTheChartsToo does so for what both can switch.
func TestComponentsAreTheChartsToo(t *testing.T) {
	values := map[string]string{
		"monitoring":            "monitoring.enabled=true",
		"node-installer":        "nodeInstaller.enabled=true",
		"webhook-cert-manager":  "webhook.certManager.enabled=true",
		"without-resource-ctrl": "resourceCtrl.enabled=false",
	}
	for _, component := range folders(t, "deploy/components") {
		t.Run(component, func(t *testing.T) {
			byOverlay, byChart := normal(parse(t, overlay(t, "libvirt", component))), normal(parse(t, chart(t, "libvirt", "--set", values[component])))
			if diff := cmp.Diff(byOverlay, byChart); diff != "" {
				t.Errorf("overlay (-) and chart (+) differ:\n%s", diff)
			}
		})
	}
}

// TestComponentsGoTogether: each knows what it must change of the other.
func TestComponentsGoTogether(t *testing.T) {
	byOverlay := normal(parse(t, overlay(t, "libvirt", "monitoring", "webhook-cert-manager")))
	byChart := normal(parse(t, chart(t, "libvirt", "--set", "monitoring.enabled=true,webhook.certManager.enabled=true")))
	if diff := cmp.Diff(byOverlay, byChart); diff != "" {
		t.Errorf("overlay (-) and chart (+) differ:\n%s", diff)
	}
}

func TestWithoutTheControllerNothingOfItIsLeft(t *testing.T) {
	for _, o := range parse(t, overlay(t, "libvirt", "without-resource-ctrl")) {
		if strings.Contains(o.GetName(), "peerpod-ctrl") {
			t.Errorf("%s is left", id(o))
		}
	}
}

// normal returns objects by name without what may differ:
//   - the namespace itself, which `helm install --create-namespace` makes;
//   - labels of objects, of which Helm has its own;
//   - Helm's annotations: that the CRD stays, and checksums of settings, by
//     which it restarts the adaptor when they change;
//   - the order of lists that have names, and the white space in base64.
func normal(all []*unstructured.Unstructured) map[string]any {
	objects := map[string]any{}
	for _, o := range all {
		if o.GetKind() == "Namespace" {
			continue
		}
		o = o.DeepCopy()
		o.SetLabels(keep(o.GetLabels(), func(key string) bool { return key == "grafana_dashboard" }))
		o.SetAnnotations(keep(o.GetAnnotations(), func(key string) bool { return key != "helm.sh/resource-policy" }))
		if annotations, found, _ := unstructured.NestedMap(o.Object, "spec", "template", "metadata", "annotations"); found {
			maps.DeleteFunc(annotations, func(key string, _ any) bool { return strings.HasPrefix(key, "checksum/") })
			_ = unstructured.SetNestedMap(o.Object, annotations, "spec", "template", "metadata", "annotations")
		}
		if data, found, _ := unstructured.NestedStringMap(o.Object, "data"); found && o.GetKind() == "Secret" {
			for key, value := range data {
				data[key] = strings.Join(strings.Fields(value), "")
			}
			_ = unstructured.SetNestedStringMap(o.Object, data, "data")
		}
		objects[id(o)] = plain(o.Object)
	}
	return objects
}

func keep(m map[string]string, wanted func(string) bool) map[string]string {
	maps.DeleteFunc(m, func(key, _ string) bool { return !wanted(key) })
	if len(m) == 0 {
		return nil
	}
	return m
}

// plain drops what is empty and sorts lists of things with names.
func plain(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, inner := range v {
			if inner = plain(inner); inner != nil || key == "emptyDir" {
				out[key] = inner
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		return plainList(v)
	}
	return value
}

func plainList(list []any) any {
	var out []any
	for _, inner := range list {
		out = append(out, plain(inner))
	}
	slices.SortStableFunc(out, func(a, b any) int { return strings.Compare(nameOf(a), nameOf(b)) })
	if len(out) == 0 {
		return nil
	}
	return out
}

func nameOf(value any) string {
	m, _ := value.(map[string]any)
	name, _ := m["name"].(string)
	return name
}
