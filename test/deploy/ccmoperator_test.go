// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/outrigger/outrigger/internal/ccmoperator/bundle"
	"github.com/outrigger/outrigger/internal/ccmoperator/bundles"
)

// TestOperatorHoldsWhatItGives: an API server lets nobody give rights that he does
// not have.
func TestOperatorHoldsWhatItGives(t *testing.T) {
	held := map[string][]rbacv1.PolicyRule{}
	for _, o := range parse(t, output(t, tool(t, "kustomize"), "build", filepath.Join(root, "deploy/ccm-operator/kubernetes"))) {
		if rules, is := rulesOf(t, o); is {
			held[o.GetNamespace()] = append(held[o.GetNamespace()], rules...)
		}
	}
	set, err := bundles.Set()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range set {
		for _, o := range roles(t, b) {
			rules, _ := rulesOf(t, o)
			holds := held[""]
			if ns := o.GetNamespace(); ns != "" {
				holds = append(holds[:len(holds):len(holds)], held[ns]...)
			}
			if covered, lacks := validation.Covers(holds, rules); !covered {
				t.Errorf("%s: %s %s/%s gives what deploy/ccm-operator/kubernetes/rbac.yaml does not hold: %v", b.Name, o.GetKind(), o.GetNamespace(), o.GetName(), lacks)
			}
		}
	}
}

// roles are those that a bundle makes on plain Kubernetes.
func roles(t *testing.T, b *bundle.Bundle) (all []*unstructured.Unstructured) {
	t.Helper()
	images := bundle.Images{bundle.OperatorImage: "x"}
	for _, key := range b.ImageKeys() {
		images[key] = "x"
	}
	objects, err := b.Resources(bundle.Values{Flavor: bundle.Kubernetes, Namespace: "ccm-system", Images: images})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: fields}
		if _, is := rulesOf(t, u); is {
			all = append(all, u)
		}
	}
	return all
}

// rulesOf are the rules of a role of either kind.
func rulesOf(t *testing.T, o *unstructured.Unstructured) ([]rbacv1.PolicyRule, bool) {
	t.Helper()
	if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
		return nil, false
	}
	var role rbacv1.ClusterRole
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
		t.Fatal(err)
	}
	return role.Rules, true
}
