// SPDX-License-Identifier: Apache-2.0

package bundles

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

// mayBe are the accounts of which a role lets make tokens.
func mayBe(r *rbacv1.Role) (names []string) {
	for _, rule := range r.Rules {
		if slices.Contains(rule.Resources, "serviceaccounts/token") {
			names = append(names, rule.ResourceNames...)
		}
	}
	return names
}

// TestManagersMayBeTheirAccounts: a provider that may not make a token of its
// account initializes nothing, and only its log says so.
func TestManagersMayBeTheirAccounts(t *testing.T) {
	operator := mayBe(operatorRole(t))
	for _, b := range set(t) {
		if !b.For(bundle.Kubernetes) {
			continue
		}
		objects, err := b.Resources(bundle.Values{Images: images(b), Flavor: bundle.Kubernetes})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(objects, func(o client.Object) bool { r, is := o.(*rbacv1.Role); return is && len(mayBe(r)) > 0 })
		got := mayBe(objects[i].(*rbacv1.Role))
		if want := append([]string{"node-controller", "service-controller", "route-controller"}, b.Accounts...); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", b.Name, got, want)
		}
		for _, name := range got {
			if !slices.Contains(operator, name) {
				t.Errorf("%s: the operator may not give the right to %s", b.Name, name)
			}
		}
	}
}

// operatorRole is what the operator may do in kube-system of plain Kubernetes.
func operatorRole(t *testing.T) *rbacv1.Role {
	t.Helper()
	text, err := os.ReadFile("../../../../deploy/ccm-operator/kubernetes/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(string(text), "\n---\n") {
		var r rbacv1.Role
		if err := yaml.Unmarshal([]byte(doc), &r); err != nil {
			t.Fatal(err)
		}
		if r.Kind == "Role" && r.Namespace == bundle.SystemNamespace {
			return &r
		}
	}
	t.Fatal("there is no Role in kube-system")
	return nil
}

// TestMergedConfigurationIsReadable: the injector writes files that others than
// its user and group cannot read, and managers run as whom they like.
func TestMergedConfigurationIsReadable(t *testing.T) {
	seen := 0
	for _, b := range set(t) {
		for _, flavor := range b.Flavors {
			if flavor == bundle.OpenShift {
				continue // there the injector is that of the release, whose file all may read
			}
			objects, err := b.Resources(bundle.Values{Images: images(b), InfrastructureName: "cluster-x7k2p", Flavor: flavor})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects {
				spec := bundle.PodSpec(o)
				if spec == nil || !slices.ContainsFunc(spec.InitContainers, isInjector) {
					continue
				}
				seen++
				if c := spec.SecurityContext; c == nil || c.FSGroup == nil {
					t.Errorf("%s for %s: %s has no fsGroup", b.Name, flavor, o.GetName())
				}
			}
		}
	}
	if seen != 4 { // two bundles, a Deployment and a DaemonSet
		t.Errorf("%d objects have the injector", seen)
	}
}

func isInjector(c corev1.Container) bool {
	return slices.Contains(slices.Concat(c.Command, c.Args), "azure-config-credentials-injector")
}
