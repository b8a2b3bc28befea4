// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundles"
)

// installation is one of the operator.
type installation struct {
	folder string
	flavor bundle.Flavor
	// namespace is where operands are, home where the operator is.
	namespace, home string
}

var (
	onKubernetes = installation{"kubernetes", bundle.Kubernetes, "ccm-system", "ccm-system"}
	onOpenShift  = installation{"openshift", bundle.OpenShift, "openshift-cloud-controller-manager", "openshift-cloud-controller-manager-operator"}
)

// render returns what `kubectl apply -k` applies, in its order.
func (i installation) render(t testing.TB) []byte {
	t.Helper()
	kustomize, folder := tool(t, "kustomize"), filepath.Join(root, "deploy/ccm-operator", i.folder)
	return once("ccm-operator "+i.folder, func() []byte { return output(t, kustomize, "build", folder) })
}

// TestOperatorHoldsWhatItGives: an API server lets nobody give rights that he does
// not have.
func TestOperatorHoldsWhatItGives(t *testing.T) {
	for _, i := range []installation{onKubernetes, onOpenShift} {
		t.Run(i.folder, func(t *testing.T) {
			held := heldBy(t, parse(t, i.render(t)), rbacv1.Subject{Kind: "ServiceAccount", Namespace: i.home, Name: "ccm-operator"})
			for _, b := range bundlesFor(t, i.flavor) {
				for _, o := range roles(t, b, i) {
					rules, _ := rulesOf(t, o)
					holds := held[""]
					if ns := o.GetNamespace(); ns != "" {
						holds = append(holds[:len(holds):len(holds)], held[ns]...)
					}
					if covered, lacks := validation.Covers(holds, rules); !covered {
						t.Errorf("%s: %s %s/%s gives what deploy/ccm-operator/%s/rbac.yaml does not hold: %v", b.Name, o.GetKind(), o.GetNamespace(), o.GetName(), i.folder, lacks)
					}
				}
			}
		})
	}
}

// TestManagersMayBeTheirProvidersAccounts: on OpenShift the installation says so,
// elsewhere each bundle.
func TestManagersMayBeTheirProvidersAccounts(t *testing.T) {
	manager := rbacv1.Subject{Kind: "ServiceAccount", Namespace: onOpenShift.namespace, Name: "cloud-controller-manager"}
	held := heldBy(t, parse(t, onOpenShift.render(t)), manager)["kube-system"]
	for _, b := range bundlesFor(t, bundle.OpenShift) {
		for _, name := range append([]string{"node-controller", "service-controller"}, b.Accounts...) {
			wanted := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{name}, Verbs: []string{"create"}}
			if covered, _ := validation.Covers(held, []rbacv1.PolicyRule{wanted}); !covered {
				t.Errorf("%s: deploy/ccm-operator/openshift/operands.yaml gives no token of %s", b.Name, name)
			}
		}
	}
}

// TestOrderOnOpenShift: who waits for something comes after it.
func TestOrderOnOpenShift(t *testing.T) {
	var kinds []string
	for _, o := range inOrder(t, onOpenShift.render(t)) {
		if len(kinds) == 0 || kinds[len(kinds)-1] != o.GetKind() {
			kinds = append(kinds, o.GetKind())
		}
	}
	last := -1
	for _, kind := range []string{"Namespace", "ConfigMap", "ServiceAccount", "ClusterRole", "Service", "NetworkPolicy", "CredentialsRequest", "Deployment", "ClusterOperator"} {
		at := slices.Index(kinds, kind)
		if at <= last {
			t.Errorf("%s is not after those that it needs: %v", kind, kinds)
		}
		last = at
	}
}

// TestCredentialsAreAskedFor: of each Secret that a bundle needs on OpenShift,
// except for our own, which the cluster's credential operator knows nothing of.
func TestCredentialsAreAskedFor(t *testing.T) {
	asked := map[string]bool{}
	for _, o := range parse(t, onOpenShift.render(t)) {
		if o.GetKind() != "CredentialsRequest" {
			continue
		}
		name, _, _ := unstructured.NestedString(o.Object, "spec", "secretRef", "name")
		namespace, _, _ := unstructured.NestedString(o.Object, "spec", "secretRef", "namespace")
		if namespace != onOpenShift.namespace || o.GetNamespace() != "openshift-cloud-credential-operator" {
			t.Errorf("%s: of %s, for %s", id(o), o.GetNamespace(), namespace)
		}
		asked[name] = true
	}
	for _, b := range bundlesFor(t, bundle.OpenShift) {
		for _, name := range b.SecretNames() {
			if !asked[name] && b.Name != "alibabacloud" {
				t.Errorf("%s: nobody asks for Secret %s", b.Name, name)
			}
		}
	}
	if len(asked) != 6 {
		t.Errorf("Secrets %v", asked)
	}
}

// bundlesFor are the built-in bundles for one kind of cluster.
func bundlesFor(t *testing.T, flavor bundle.Flavor) (all []*bundle.Bundle) {
	t.Helper()
	set, err := bundles.Set()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range set {
		if b.For(flavor) {
			all = append(all, b)
		}
	}
	if len(all) < 9 {
		t.Fatalf("only %d bundles", len(all))
	}
	return all
}

// heldBy are the rules that bindings give an account, by namespace; those of all
// namespaces have none.
func heldBy(t *testing.T, all []*unstructured.Unstructured, account rbacv1.Subject) map[string][]rbacv1.PolicyRule {
	t.Helper()
	held := map[string][]rbacv1.PolicyRule{}
	for _, o := range all {
		var binding rbacv1.RoleBinding
		if kind := o.GetKind(); kind != "RoleBinding" && kind != "ClusterRoleBinding" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(binding.Subjects, account) {
			held[o.GetNamespace()] = append(held[o.GetNamespace()], named(t, all, binding.RoleRef, o.GetNamespace())...)
		}
	}
	return held
}

// named are the rules of a role; none of a role that is not installed here.
func named(t *testing.T, all []*unstructured.Unstructured, ref rbacv1.RoleRef, namespace string) (rules []rbacv1.PolicyRule) {
	t.Helper()
	for _, o := range all {
		if o.GetKind() == ref.Kind && o.GetName() == ref.Name && o.GetNamespace() == namespace {
			own, _ := rulesOf(t, o)
			rules = append(rules, own...)
		}
	}
	return rules
}

// roles are those that a bundle makes.
func roles(t *testing.T, b *bundle.Bundle, i installation) []*unstructured.Unstructured {
	t.Helper()
	return slices.DeleteFunc(objects(t, b, i), func(o *unstructured.Unstructured) bool { _, is := rulesOf(t, o); return !is })
}

// objects are all that a bundle makes.
func objects(t *testing.T, b *bundle.Bundle, i installation) (all []*unstructured.Unstructured) {
	t.Helper()
	images := bundle.Images{bundle.OperatorImage: "x"}
	for _, key := range b.ImageKeys() {
		images[key] = "x"
	}
	made, err := b.Resources(bundle.Values{Flavor: i.flavor, Namespace: i.namespace, Images: images, InfrastructureName: "cluster-x7k2p"})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range made {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &unstructured.Unstructured{Object: fields})
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
