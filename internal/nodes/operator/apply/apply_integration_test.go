// SPDX-License-Identifier: Apache-2.0

//go:build integration

package apply

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestApply runs against a real API server and its controllers.
func TestApply(t *testing.T) {
	c := newClient(t)
	for name, test := range map[string]func(*place){
		"second-pass": secondPass, "user-labels": userLabels, "drift": drift, "config-hash": configHash,
		"missing-config": missingConfig, "selector": selector, "malformed": malformed, "finalizer": finalizer,
		"role-ref": roleRef, "prune": prune, "prune-foreign": pruneForeign, "prune-after-crash": pruneAfterCrash,
		"unknown-kind": unknownKind, "one-fails": oneFails, "aggregated": aggregated, "stale-inventory": staleInventory,
		"prune-unseen": pruneUnseen, "prune-held": pruneHeld, "forget": forget,
		"foreign": foreign, "foreign-adopted": foreignAdopted, "foreign-unseen": foreignUnseen, "disowned": disowned,
		"contested": contestedBySomebody, "contested-by-webhook": contestedByWebhook,
	} {
		t.Run(name, func(t *testing.T) { test(newPlace(t, c, name)) })
	}
}

// everything is one object of each kind.
func (p *place) everything() []client.Object {
	cluster := func(m metav1.ObjectMeta) metav1.ObjectMeta {
		m.Name, m.Namespace = p.namespace+"-"+m.Name, ""
		return m
	}
	port := intstr.FromInt32(1)
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "account", Namespace: p.namespace}}
	ref := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: kind, Name: name}
	}
	daemons := &appsv1.DaemonSet{ObjectMeta: p.meta("daemons")}
	d := p.deployment("daemons")
	daemons.Spec.Selector, daemons.Spec.Template = d.Spec.Selector, d.Spec.Template
	return []client.Object{
		p.configMap("config", "key", "value"),
		&corev1.ServiceAccount{ObjectMeta: p.meta("account")},
		p.deployment("deployment"), daemons,
		&corev1.Service{ObjectMeta: p.meta("service"), Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "deployment"}, Ports: []corev1.ServicePort{{Name: "https", Port: 10258}},
		}},
		&policyv1.PodDisruptionBudget{ObjectMeta: p.meta("pdb"), Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &port, Selector: d.Spec.Selector}},
		&rbacv1.Role{ObjectMeta: p.meta("role"), Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: p.meta("binding"), Subjects: subjects, RoleRef: ref("Role", "role")},
		&rbacv1.ClusterRole{ObjectMeta: cluster(p.meta("role")), Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: cluster(p.meta("binding")), Subjects: subjects, RoleRef: ref("ClusterRole", p.namespace+"-role")},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: cluster(p.meta("policy")), Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{"DELETE"},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "true"}},
		}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: cluster(p.meta("policy")), Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: p.namespace + "-policy", ValidationActions: []admissionv1.ValidationAction{"Deny"},
		}},
	}
}

func names(objects []client.Object) (all []string) {
	for _, o := range objects {
		_, kind, _ := strings.Cut(fmt.Sprintf("%T", o), ".")
		all = append(all, kind+" "+strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
	}
	return all
}

func secondPass(p *place) {
	p.sync(p.everything(), names(p.everything())...)
	p.sync(p.everything())
	// Also what an Applier without memory sees.
	another := *p.Applier
	p.Applier = &another
	p.sync(p.everything())
}

func userLabels(p *place) {
	p.sync([]client.Object{p.deployment("d")}, "Deployment user-labels/d")
	d := p.deployment("d")
	p.edit(d, func() {
		d.Labels["theirs"], d.Annotations["theirs"] = "x", "x"
		delete(d.Labels, "app")
	})
	p.sync([]client.Object{p.deployment("d")}, "Deployment user-labels/d")
	var after appsv1.Deployment
	p.get(&after, "d")
	if after.Labels["theirs"] != "x" || after.Annotations["theirs"] != "x" || after.Labels["app"] != "d" {
		p.Errorf("labels %v, annotations %v", after.Labels, after.Annotations)
	}
	if after.Generation != d.Generation {
		p.Errorf("a label made another generation: %d, was %d", after.Generation, d.Generation)
	}
}

// drift changes each kind as somebody would by hand.
func drift(p *place) {
	objects := p.everything()
	p.sync(objects, names(objects)...)
	for i, edit := range []func(client.Object){
		0: func(o client.Object) {
			cm := o.(*corev1.ConfigMap)
			cm.Data["more"] = "x"
			cm.BinaryData = map[string][]byte{"b": {1}}
		},
		2: func(o client.Object) { o.(*appsv1.Deployment).Spec.Template.Spec.HostPID = true },
		3: func(o client.Object) {
			o.(*appsv1.DaemonSet).Spec.Template.Spec.Containers[0].Image = "example.test/other"
		},
		4: func(o client.Object) {
			s := o.(*corev1.Service)
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "more", Port: 1})
		},
		5: func(o client.Object) {
			one := intstr.FromInt32(0)
			o.(*policyv1.PodDisruptionBudget).Spec.MinAvailable = &one
		},
		6: func(o client.Object) { o.(*rbacv1.Role).Rules = nil },
		7: func(o client.Object) { o.(*rbacv1.RoleBinding).Subjects = nil },
		8: func(o client.Object) { r := o.(*rbacv1.ClusterRole); r.Rules = append(r.Rules, r.Rules[0]) },
		9: func(o client.Object) { o.(*rbacv1.ClusterRoleBinding).Subjects[0].Name = "other" },
		10: func(o client.Object) {
			v := o.(*admissionv1.ValidatingAdmissionPolicy)
			v.Spec.Validations = append(v.Spec.Validations, admissionv1.Validation{Expression: "1 == 1"})
		},
		11: func(o client.Object) {
			b := o.(*admissionv1.ValidatingAdmissionPolicyBinding)
			b.Spec.ValidationActions = []admissionv1.ValidationAction{"Audit"}
		},
	} {
		if edit == nil {
			continue
		}
		name := names(objects)[i]
		before := ""
		p.edit(objects[i], func() {
			before = wantedOf(p, objects[i])
			edit(objects[i])
		})
		p.sync(p.everything(), name)
		p.must(p.Client.Get(p.Context(), client.ObjectKeyFromObject(objects[i]), objects[i]))
		if after := wantedOf(p, objects[i]); after != before {
			p.Errorf("%s: not as it was", name)
		}
		p.sync(p.everything())
	}
}

func selector(p *place) {
	p.sync([]client.Object{p.deployment("d")}, "Deployment selector/d")
	var before, after appsv1.Deployment
	p.get(&before, "d")
	other := p.deployment("d", func(d *appsv1.Deployment) {
		d.Spec.Selector.MatchLabels = map[string]string{"app": "other"}
		d.Spec.Template.Labels = d.Spec.Selector.MatchLabels
	})
	p.sync([]client.Object{other}, "Deployment selector/d")
	p.get(&after, "d")
	if after.UID == before.UID || after.Spec.Selector.MatchLabels["app"] != "other" {
		p.Errorf("not made again: %v", after.Spec.Selector)
	}
	if !slices.Contains(p.events.reasons, ReasonRecreating) || !slices.Contains(p.events.reasons, ReasonRecreated) {
		p.Errorf("events %q", p.events.reasons)
	}
	p.sync([]client.Object{other})
}

func malformed(p *place) {
	p.sync([]client.Object{p.deployment("d")}, "Deployment malformed/d")
	var before, after appsv1.Deployment
	p.get(&before, "d")
	bad := p.deployment("d", func(d *appsv1.Deployment) { d.Spec.Selector.MatchLabels = map[string]string{"app": "other"} })
	if _, err := p.Sync(p.Context(), []client.Object{bad}); !apierrors.IsInvalid(err) {
		p.Errorf("error %v, want one about selector and labels", err)
	}
	p.get(&after, "d")
	if after.UID != before.UID || after.ResourceVersion != before.ResourceVersion && after.Generation != before.Generation {
		p.Error("the old one was touched")
	}
}

func finalizer(p *place) {
	held := p.deployment("d")
	held.Finalizers = []string{"example.test/held"}
	held.Annotations = map[string]string{AdoptAnnotation: Allow}
	p.must(p.Client.Create(p.Context(), held))
	other := p.deployment("d", func(d *appsv1.Deployment) {
		d.Spec.Selector.MatchLabels = map[string]string{"app": "other"}
		d.Spec.Template.Labels = d.Spec.Selector.MatchLabels
	})
	for range 2 {
		_, err := p.Sync(p.Context(), []client.Object{other})
		if err == nil || !strings.Contains(err.Error(), "held by the finalizers [example.test/held]") {
			p.Fatalf("error %v", err)
		}
	}
	p.edit(held, func() { held.Finalizers = nil })
	p.sync([]client.Object{other}, "Deployment finalizer/d")
}

func roleRef(p *place) {
	binding := func(role string) []client.Object {
		return []client.Object{&rbacv1.RoleBinding{ObjectMeta: p.meta("b"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}}}
	}
	p.sync(binding("one"), "RoleBinding role-ref/b")
	p.sync(binding("two"), "RoleBinding role-ref/b")
	p.sync(binding("two"))
}

func prune(p *place) {
	p.sync([]client.Object{p.configMap("a"), p.configMap("b")}, "ConfigMap prune/a", "ConfigMap prune/b")
	r := p.sync([]client.Object{p.configMap("a")})
	if len(r.Pruned) != 1 || r.Pruned[0].Name != "b" {
		p.Fatalf("pruned %v, want b", r.Pruned)
	}
	if err := p.Client.Get(p.Context(), client.ObjectKey{Namespace: p.namespace, Name: "b"}, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		p.Errorf("b: %v", err)
	}
	p.sync([]client.Object{p.configMap("a")})
	if r := p.sync(nil); len(r.Pruned) != 1 {
		p.Errorf("an empty bundle: pruned %v", r.Pruned)
	}
}

// pruneForeign: somebody made the object again after it was applied.
func pruneForeign(p *place) {
	p.sync([]client.Object{p.configMap("a")}, "ConfigMap prune-foreign/a")
	p.must(p.Client.Delete(p.Context(), p.configMap("a")))
	p.must(p.Client.Create(p.Context(), p.configMap("a", "theirs", "x")))
	if r, err := p.Sync(p.Context(), nil); err != nil || len(r.Pruned) > 0 {
		p.Errorf("pruned %v, error %v", r.Pruned, err)
	}
	p.get(&corev1.ConfigMap{}, "a")
}

// pruneAfterCrash: what was recorded, and applied or not, is known afterwards.
func pruneAfterCrash(p *place) {
	items, err := p.prepare([]client.Object{p.configMap("applied"), p.configMap("recorded")})
	p.must(err)
	listed, err := p.inventory(p.Context())
	p.must(err)
	p.must(p.record(p.Context(), listed, refs(items)))
	var r Result
	p.must(p.applyOne(p.Context(), items[0], &r))
	if r := p.sync(nil); len(r.Pruned) != 1 || r.Pruned[0].Name != "applied" {
		p.Errorf("pruned %v", r.Pruned)
	}
	left, err := p.inventory(p.Context())
	if err != nil || len(left.list) > 0 {
		p.Errorf("recorded %+v, error %v", left, err)
	}
}

// pruneUnseen: what a cache does not know yet is removed anyway.
func pruneUnseen(p *place) {
	p.sync([]client.Object{p.configMap("a")}, "ConfigMap prune-unseen/a")
	p.unseen = map[string]bool{"a": true}
	if r := p.sync(nil); len(r.Pruned) != 1 {
		p.Errorf("pruned %v", r.Pruned)
	}
	p.unseen = nil
	if err := p.Client.Get(p.Context(), client.ObjectKey{Namespace: p.namespace, Name: "a"}, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		p.Errorf("a: %v", err)
	}
}

// pruneHeld: what a finalizer holds is not forgotten.
func pruneHeld(p *place) {
	p.sync([]client.Object{p.configMap("a")}, "ConfigMap prune-held/a")
	var a corev1.ConfigMap
	p.get(&a, "a")
	p.edit(&a, func() { a.Finalizers = []string{"example.test/held"} })
	for range 2 {
		if r, err := p.Sync(p.Context(), nil); err == nil || !strings.Contains(err.Error(), "held by the finalizers [example.test/held]") || len(r.Pruned) > 0 {
			p.Fatalf("pruned %v, error %v", r.Pruned, err)
		}
	}
	p.edit(&a, func() { a.Finalizers = nil })
	_, err := p.Sync(p.Context(), nil)
	p.must(err)
	p.must(p.Forget(p.Context()))
}

// forget: a list that a cache does not know yet is not removed with what is in it.
func forget(p *place) {
	p.must(p.Forget(p.Context()))
	p.sync([]client.Object{p.configMap("a")}, "ConfigMap forget/a")
	p.unseen = map[string]bool{"inventory": true}
	p.sync(nil)
	if err := p.Forget(p.Context()); err == nil || !strings.Contains(err.Error(), "still lists 1 objects") {
		p.Errorf("error %v", err)
	}
	p.unseen = nil
	p.sync(nil)
	p.must(p.Forget(p.Context()))
	if err := p.Client.Get(p.Context(), p.Inventory, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		p.Errorf("inventory: %v", err)
	}
}

func unknownKind(p *place) {
	_, err := p.Sync(p.Context(), []client.Object{&batchv1.Job{ObjectMeta: p.meta("j")}, p.configMap("a")})
	if err == nil || err.Error() != "unhandled type *v1.Job" {
		p.Errorf("error %v", err)
	}
	if len(p.writes) > 0 {
		p.Errorf("it wrote %q", p.writes)
	}
}

// oneFails: the others are applied, and nothing is pruned.
func oneFails(p *place) {
	p.sync([]client.Object{p.configMap("former")}, "ConfigMap one-fails/former")
	bad := p.deployment("bad", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = nil })
	r, err := p.Sync(p.Context(), []client.Object{bad, p.configMap("good")})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "Deployment one-fails/bad: ") {
		p.Errorf("error %v", err)
	}
	if len(r.Changed) != 1 || r.Changed[0].Name != "good" || len(r.Pruned) > 0 {
		p.Errorf("changed %v, pruned %v", r.Changed, r.Pruned)
	}
	p.get(&corev1.ConfigMap{}, "former")
}

// aggregated: the rules of an aggregated role are a controller's.
func aggregated(p *place) {
	role := func() []client.Object {
		return []client.Object{&rbacv1.ClusterRole{
			ObjectMeta:      metav1.ObjectMeta{Name: "aggregated"},
			AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": "aggregated"}}}},
		}}
	}
	p.sync(role(), "ClusterRole aggregated")
	var r rbacv1.ClusterRole
	p.must(p.Client.Get(p.Context(), client.ObjectKey{Name: "aggregated"}, &r))
	r.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}}
	p.must(client.IgnoreNotFound(p.Client.Update(p.Context(), &r)))
	p.sync(role())
}

// staleInventory: a write over a list that is no longer the one that was read is refused.
func staleInventory(p *place) {
	old, err := p.inventory(p.Context())
	p.must(err)
	p.sync([]client.Object{p.configMap("a")}, "ConfigMap stale-inventory/a")
	if err := p.note(p.Context(), old, []Ref{{Version: "v1", Kind: "ConfigMap", Name: "b"}}); err == nil {
		p.Error("the list was written over")
	}
}
