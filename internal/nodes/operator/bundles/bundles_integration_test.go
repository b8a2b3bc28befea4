// SPDX-License-Identifier: Apache-2.0

//go:build integration

package bundles

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/test/cluster"
)

const namespace = "cloud-controllers"

// TestAPIServerTakesAllBundles asks a real API server, which validates what no
// schema of ours does: expressions, references, quantities.
func TestAPIServerTakesAllBundles(t *testing.T) {
	config := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{}).RESTConfig()
	c := newClient(t, config)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	for _, b := range set(t) {
		for _, flavor := range b.Flavors {
			objects, err := b.Resources(bundle.Values{Images: images(b), InfrastructureName: "cluster-x7k2p", Flavor: flavor, Namespace: namespace})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects {
				if err := c.Create(t.Context(), o, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
					t.Errorf("%s for %s: %T %s: %v", b.Name, flavor, o, o.GetName(), err)
				}
			}
		}
	}
	old := loadBalancer(idle, "3")
	old.Name, old.Annotations[tier], old.Finalizers = "old", "Silver", []string{"service.kubernetes.io/load-balancer-cleanup"}
	if err := c.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"aws", "azure", "gcp"} {
		install(t, c, name, bundle.OpenShift, isPolicy)
	}
	t.Run("policies", func(t *testing.T) { policies(t, c) })
	t.Run("before-the-policies", func(t *testing.T) { beforeThePolicies(t, c, old) })
	t.Run("own-node", func(t *testing.T) { ownNode(t, config, c) })
	t.Run("rights", func(t *testing.T) { rights(t, c) })
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// install creates the objects of a bundle that are of a kind.
func install(t *testing.T, c client.Client, name string, flavor bundle.Flavor, wanted func(client.Object) bool) {
	t.Helper()
	b, err := set(t).Named(name)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := b.Resources(bundle.Values{Images: images(b), InfrastructureName: "cluster-x7k2p", Flavor: flavor, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if wanted(o) {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func isPolicy(o client.Object) bool {
	switch o.(type) {
	case *admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding:
		return true
	}
	return false
}

func loadBalancer(key, value string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lb", Annotations: map[string]string{key: value}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// eventually waits until a policy that was just made is in force.
func eventually(t *testing.T, what string, try func(context.Context) error, refused string) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last != nil && strings.Contains(last.Error(), refused), nil
	})
	if err != nil {
		t.Errorf("%s: the last answer was %v, want %q", what, last, refused)
	}
}

const (
	idle = "service.beta.kubernetes.io/azure-load-balancer-tcp-idle-timeout"
	tier = "cloud.google.com/network-tier"
	kind = "service.beta.kubernetes.io/aws-load-balancer-type"
)

// beforeThePolicies: a Service that has an annotation that is refused now can be
// changed and deleted, since it is not this change that is wrong.
func beforeThePolicies(t *testing.T, c client.Client, old *corev1.Service) {
	patch := func(text string, options ...client.PatchOption) error {
		return c.Patch(t.Context(), old.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(text)), options...)
	}
	for _, bad := range [][2]string{{idle, "2"}, {tier, "Gold"}} {
		if err := patch(`{"metadata":{"annotations":{"`+bad[0]+`":"`+bad[1]+`"}}}`, client.DryRunAll); err == nil {
			t.Errorf("%s=%q is taken in place of another wrong value", bad[0], bad[1])
		}
	}
	for _, change := range []string{
		`{"metadata":{"labels":{"a":"b"}}}`, `{"spec":{"sessionAffinity":"ClientIP"}}`, `{"metadata":{"annotations":{"` + idle + `":"5"}}}`,
		`{"metadata":{"annotations":{"` + tier + `":null}}}`, `{"metadata":{"annotations":null}}`,
	} {
		if err := patch(change, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", change, err)
		}
	}
	if err := c.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if err := patch(`{"metadata":{"finalizers":null}}`); err != nil {
		t.Errorf("it cannot be deleted: %v", err)
	}
}

func policies(t *testing.T, c client.Client) {
	create := func(key, value string) func(context.Context) error {
		return func(ctx context.Context) error { return c.Create(ctx, loadBalancer(key, value), client.DryRunAll) }
	}
	eventually(t, "3 minutes", create(idle, "3"), "from 4 to 100")
	eventually(t, "no tier", create(tier, "Silver"), "must be Standard or Premium")
	for _, bad := range [][2]string{{idle, "101"}, {idle, "x"}, {idle, ""}, {idle, "4.5"}, {tier, "standard"}, {tier, ""}} {
		if err := create(bad[0], bad[1])(t.Context()); err == nil {
			t.Errorf("%s=%q is taken", bad[0], bad[1])
		}
	}
	for _, good := range [][2]string{{idle, "4"}, {idle, "100"}, {tier, "Standard"}, {tier, "Premium"}, {"other", "x"}} {
		if err := create(good[0], good[1])(t.Context()); err != nil {
			t.Errorf("%s=%q: %v", good[0], good[1], err)
		}
	}
	s := loadBalancer(kind, "nlb")
	if err := c.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	change := func(value string) func(context.Context) error {
		return func(ctx context.Context) error {
			if value == "" {
				value = "null"
			} else {
				value = `"` + value + `"`
			}
			return c.Patch(ctx, s.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+kind+`":`+value+`}}}`)), client.DryRunAll)
		}
	}
	eventually(t, "another type", change("external"), "cannot be changed")
	eventually(t, "no type", change(""), "cannot be changed")
	if err := change("nlb")(t.Context()); err != nil {
		t.Error(err)
	}
}

// ownNode: a node manager changes its own Node and no other.
func ownNode(t *testing.T, config *rest.Config, c client.Client) {
	for _, name := range []string{"mine", "theirs"} {
		if err := c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	install(t, c, "azure", bundle.Kubernetes, func(o client.Object) bool {
		return !isPolicy(o) && (strings.HasSuffix(o.GetName(), "cloud-node-manager") && bundle.PodSpec(o) == nil)
	})
	as := func(node string) client.Client {
		impersonating := rest.CopyConfig(config)
		impersonating.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":cloud-node-manager", Groups: []string{"system:authenticated"}}
		if node != "" {
			impersonating.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
		}
		return newClient(t, impersonating)
	}
	label := func(c client.Client, node string) func(context.Context) error {
		return func(ctx context.Context) error {
			return c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`)), client.DryRunAll)
		}
	}
	eventually(t, "another's Node", label(as("mine"), "theirs"), "the node manager of mine cannot change the Node theirs")
	eventually(t, "an unbound token", label(as(""), "mine"), "must be bound to its node")
	if err := label(as("mine"), "mine")(t.Context()); err != nil {
		t.Error(err)
	}
	if err := label(c, "theirs")(t.Context()); err != nil {
		t.Errorf("others are refused: %v", err)
	}
}

// rights are those that a manager needs on plain Kubernetes, and no more.
func rights(t *testing.T, c client.Client) {
	install(t, c, "libvirt", bundle.Kubernetes, func(o client.Object) bool { return bundle.PodSpec(o) == nil })
	for _, test := range []struct {
		verb, group, resource, sub, namespace, name string
		allowed                                     bool
	}{
		{"list", "", "nodes", "", "", "", true},
		{"watch", "", "services", "", "", "", true},
		{"create", "", "events", "", "default", "", true},
		{"create", "authentication.k8s.io", "tokenreviews", "", "", "", true},
		{"create", "authorization.k8s.io", "subjectaccessreviews", "", "", "", true},
		{"update", "coordination.k8s.io", "leases", "", namespace, "cloud-controller-manager", true},
		{"create", "", "serviceaccounts", "token", "kube-system", "node-controller", true},
		{"get", "", "serviceaccounts", "", "kube-system", "node-controller", true},
		{"get", "", "configmaps", "", "kube-system", "extension-apiserver-authentication", true},
		{"create", "", "serviceaccounts", "token", "kube-system", "namespace-controller", false},
		{"update", "coordination.k8s.io", "leases", "", namespace, "other", false},
		{"delete", "", "nodes", "", "", "", false},
		{"get", "", "secrets", "", namespace, "", false},
	} {
		r := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + namespace + ":cloud-controller-manager",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: test.verb, Group: test.group, Resource: test.resource, Subresource: test.sub, Namespace: test.namespace, Name: test.name,
			},
		}}
		err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
			err := c.Create(ctx, r)
			return r.Status.Allowed == test.allowed, err
		})
		if err != nil {
			t.Errorf("%+v: allowed is %t, %v", test, r.Status.Allowed, err)
		}
	}
}
