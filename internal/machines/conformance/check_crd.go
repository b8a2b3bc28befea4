// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var crdChecks = []Check{
	{"crd-name", "A definition is named after its kind's plural as core computes it, and its group.", nil, checkCRD("spec.names.kind", "KIND")},
	{"crd-scope", "The kinds are namespaced.", nil, checkCRD("spec.scope", "Namespaced")},
	{"crd-list", "The kind of a list is that of its objects and \"List\".", nil, checkCRD("spec.names.listKind", "KINDList")},
	{"crd-contract-label", "A definition carries the label cluster.x-k8s.io/v1beta2 with versions that are served.", nil, func(r *run) {
		r.eachCRD(func(_, crd *unstructured.Unstructured) {
			label := crd.GetLabels()[contractLabel()]
			if label == "" {
				r.Errorf("%s has no label %s, by which core finds the version to use", crd.GetName(), contractLabel())
				return
			}
			for version := range strings.SplitSeq(label, "_") {
				if v := versionOf(crd, version); v == nil || v["served"] != true {
					r.Errorf("%s: label %s names %q, which is not served", crd.GetName(), contractLabel(), version)
				}
			}
		})
	}},
	{"crd-status", "InfraCluster and InfraMachine have a status subresource.", nil, func(r *run) {
		for _, kind := range []*unstructured.Unstructured{r.Objects.Cluster, r.Objects.Machine} {
			crd := r.crdOf(kind)
			v := r.versionUsed(kind, crd)
			if _, ok, _ := unstructured.NestedMap(v, "subresources", "status"); !ok {
				r.Errorf("%s %s has no status subresource", crd.GetName(), v["name"])
			}
		}
	}},
	{"core-permissions", "A ClusterRole with the label cluster.x-k8s.io/aggregate-to-manager lets core work on kinds of another group than infrastructure.cluster.x-k8s.io.", nil, func(r *run) {
		var foreign []*unstructured.Unstructured
		for _, kind := range r.Objects.kinds() {
			if kind.GroupVersionKind().Group != coreGroup {
				foreign = append(foreign, kind)
			}
		}
		if len(foreign) == 0 {
			r.Skipf("not checked: core may work on the group %s anyway", coreGroup)
		}
		roles := listOf(empty(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"})).(*unstructured.UnstructuredList)
		if err := r.Client.List(r.Context(), roles, client.MatchingLabels{aggregationLabel: "true"}); err != nil {
			r.Fatalf("list ClusterRoles: %v", err)
		}
		for _, kind := range foreign {
			group, plural := kind.GroupVersionKind().Group, text(r.crdOf(kind), "spec", "names", "plural")
			if missing := slices.DeleteFunc(slices.Clone(aggregated), func(verb string) bool { return allows(roles, group, plural, verb) }); len(missing) > 0 {
				r.Errorf("no ClusterRole with the label %s: \"true\" lets core %s %s.%s", aggregationLabel, strings.Join(missing, ", "), plural, group)
			}
		}
	}},
	{"cluster-fields", "InfraCluster has the fields that core reads: spec.controlPlaneEndpoint, status.initialization.provisioned, status.conditions.", nil, checkFields("cluster", clusterFields)},
	{"machine-fields", "InfraMachine has the fields that core reads: spec.providerID and status with initialization.provisioned, addresses, failureDomain, conditions.", nil, checkFields("machine", machineFields)},
	{"template-fields", "A template has spec.template with metadata and spec.", []need{needsTemplate}, func(r *run) {
		for _, template := range []*unstructured.Unstructured{r.Objects.ClusterTemplate, r.Objects.MachineTemplate, r.Objects.PoolTemplate} {
			if template != nil {
				r.wantField(template, "spec.template.spec", "object")
				r.wantField(template, "spec.template.metadata", "object")
			}
		}
	}},
}

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// crdOf returns the definition of a kind under the name that core computes.
func (r *run) crdOf(u *unstructured.Unstructured) *unstructured.Unstructured {
	gvk := u.GroupVersionKind()
	name := contract.CalculateCRDName(gvk.Group, gvk.Kind)
	crd := empty(crdKind)
	if err := r.Client.Get(r.Context(), types.NamespacedName{Name: name}, crd); err != nil {
		r.Fatalf("%s: core looks for its definition under the name %s: %v", gvk.Kind, name, err)
	}
	return crd
}

func (r *run) eachCRD(f func(kind, crd *unstructured.Unstructured)) {
	for _, kind := range r.Objects.kinds() {
		f(kind, r.crdOf(kind))
	}
}

// checkCRD compares a field of each definition with what it is to be; KIND stands for its kind.
func checkCRD(path, want string) func(*run) {
	return func(r *run) {
		r.eachCRD(func(kind, crd *unstructured.Unstructured) {
			want := strings.ReplaceAll(want, "KIND", kind.GetKind())
			if got := text(crd, strings.Split(path, ".")...); got != want {
				r.Errorf("%s has %s %s, not %s", crd.GetName(), path, got, want)
			}
		})
	}
}

func contractLabel() string {
	return clusterv1.GroupVersion.Group + "/" + clusterv1.GroupVersion.Version
}

func versionOf(crd *unstructured.Unstructured, name string) map[string]any {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, item := range versions {
		if v, ok := item.(map[string]any); ok && v["name"] == name {
			return v
		}
	}
	return nil
}

// versionUsed returns the version of a definition that the file uses.
func (r *run) versionUsed(kind, crd *unstructured.Unstructured) map[string]any {
	name := kind.GroupVersionKind().Version
	v := versionOf(crd, name)
	if v == nil {
		r.Fatalf("%s has no version %s, which the file uses", crd.GetName(), name)
	}
	return v
}

func (r *run) wantField(kind *unstructured.Unstructured, path, want string) {
	crd := r.crdOf(kind)
	node, _, _ := unstructured.NestedMap(r.versionUsed(kind, crd), "schema", "openAPIV3Schema")
	for name := range strings.SplitSeq(path, ".") {
		properties, _ := node["properties"].(map[string]any)
		node, _ = properties[name].(map[string]any)
	}
	if node == nil {
		r.Errorf("%s has no field %s", kind.GetKind(), path)
		return
	}
	if got := fmt.Sprint(node["type"]); got != want {
		r.Errorf("%s: %s is of type %s, not %s", kind.GetKind(), path, got, want)
	}
}

// fields are those of a kind that core reads, with their types.
type fields map[string]string

var (
	clusterFields = fields{
		"spec.controlPlaneEndpoint.host": "string", "spec.controlPlaneEndpoint.port": "integer",
		"status.initialization.provisioned": "boolean", "status.conditions": "array",
	}
	machineFields = fields{
		"spec.providerID": "string", "status.initialization.provisioned": "boolean", "status.addresses": "array",
		"status.failureDomain": "string", "status.conditions": "array",
	}
	poolFields = fields{"spec.providerIDList": "array", "status.initialization.provisioned": "boolean", "status.replicas": "integer"}
)

func checkFields(role string, wanted fields) func(*run) {
	return func(r *run) {
		for path, kind := range wanted {
			r.wantField(*r.Objects.byRole()[role], path, kind)
		}
	}
}

const (
	// coreGroup is the one that core may work on in any case.
	coreGroup        = "infrastructure.cluster.x-k8s.io"
	aggregationLabel = "cluster.x-k8s.io/aggregate-to-manager"
)

var aggregated = []string{"create", "delete", "get", "list", "patch", "update", "watch"}

func allows(roles *unstructured.UnstructuredList, group, plural, verb string) bool {
	for _, role := range roles.Items {
		rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
		for _, item := range rules {
			rule, _ := item.(map[string]any)
			if among(rule["apiGroups"], group) && among(rule["resources"], plural) && among(rule["verbs"], verb) {
				return true
			}
		}
	}
	return false
}

// among reports whether a rule's list has a word, or all.
func among(list any, word string) bool {
	words, _ := list.([]any)
	return slices.Contains(words, any(word)) || slices.Contains(words, any("*"))
}
