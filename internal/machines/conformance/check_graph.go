// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// everywhere reports whether an object is one that the cluster itself puts into each
// namespace: bundles of authorities, and what belongs to accounts.
func (fx *fixture) everywhere(o client.Object) bool {
	u, is := o.(*unstructured.Unstructured)
	if !is {
		return false
	}
	switch u.GetKind() {
	case "ConfigMap":
		twin := empty(u.GroupVersionKind())
		return fx.Client.Get(fx.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: u.GetName()}, twin) == nil
	case "Secret":
		return slices.Contains([]string{"kubernetes.io/service-account-token", "kubernetes.io/dockercfg"}, text(u, "type"))
	}
	return false
}

// kindsOfProvider returns the kinds of objects that a provider may store: its own
// group's, Secrets and ConfigMaps.
func (r *run) kindsOfProvider() []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{{Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "ConfigMap"}}
	crds := listOf(empty(crdKind)).(*unstructured.UnstructuredList)
	if err := r.Client.List(r.Context(), crds); err != nil {
		r.Fatalf("list definitions: %v", err)
	}
	for _, crd := range crds.Items {
		group := text(&crd, "spec", "group")
		if group != r.Objects.Cluster.GroupVersionKind().Group && group != r.Objects.Machine.GroupVersionKind().Group || text(&crd, "spec", "scope") != "Namespaced" {
			continue
		}
		if version := servedVersion(&crd); version != "" {
			kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: version, Kind: text(&crd, "spec", "names", "kind")})
		}
	}
	return kinds
}

// servedVersion returns the stored version, if it is served, or another one.
func servedVersion(crd *unstructured.Unstructured) (name string) {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, item := range versions {
		v, _ := item.(map[string]any)
		if v["served"] == true && (name == "" || v["storage"] == true) {
			name, _ = v["name"].(string)
		}
	}
	return name
}

// leads reports whether the owners of an object, theirs and so on lead to the
// Cluster.
func (fx *fixture) leads(o client.Object, steps int) bool {
	for _, owner := range o.GetOwnerReferences() {
		gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
		if gvk.Kind == "Cluster" && gvk.Group == clusterv1.GroupVersion.Group && owner.Name == fx.cluster {
			return true
		}
		if steps > 0 {
			above := empty(gvk)
			if fx.Client.Get(fx.Context(), fx.key(owner.Name), above) == nil && fx.leads(above, steps-1) {
				return true
			}
		}
	}
	return false
}
