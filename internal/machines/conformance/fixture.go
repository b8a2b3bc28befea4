// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fixture is a namespace with one Cluster, its infrastructure and its machines.
type fixture struct {
	*run
	namespace, cluster string
	// alone keeps the kit from acting as Cluster API's core here.
	alone bool
	// moveStrictly has the kit check objects while they are moved away.
	moveStrictly bool
}

// change is made to an object before it is created.
type change func(client.Object)

func annotated(key, value string) change {
	return func(o client.Object) {
		all := map[string]string{key: value}
		for k, v := range o.GetAnnotations() {
			all[k] = v
		}
		o.SetAnnotations(all)
	}
}

func labelled(key, value string) change {
	return func(o client.Object) {
		all := map[string]string{key: value}
		for k, v := range o.GetLabels() {
			all[k] = v
		}
		o.SetLabels(all)
	}
}

// withHold puts the kit's own finalizer on an object, so that the object can still be read
// when the provider has removed its finalizer.
func withHold(o client.Object) { o.SetFinalizers(append(o.GetFinalizers(), holdFinalizer)) }

const holdFinalizer = "capi-conformance.outrigger.dev/hold"

// addCluster creates the Cluster and its infrastructure with the changes applied. It
// returns the infrastructure as the API server returned it.
func (p *fixture) addCluster(ofCluster func(*clusterv1.Cluster), ofInfra ...change) *unstructured.Unstructured {
	p.Helper()
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.cluster}}
	c.Spec.InfrastructureRef = refTo(p.Objects.Cluster, p.cluster)
	if !p.CoreRuns {
		c.Finalizers = []string{clusterv1.ClusterFinalizer}
	}
	if ofCluster != nil {
		ofCluster(c)
	}
	p.create(c)
	return p.addInfra(p.Objects.Cluster, p.cluster, ofInfra)
}

func (p *fixture) addInfra(from *unstructured.Unstructured, name string, changes []change) *unstructured.Unstructured {
	p.Helper()
	infra := instance(from, p.namespace, p.cluster, name)
	labelled(clusterv1.ClusterNameLabel, p.cluster)(infra)
	p.filtered(infra)
	for _, f := range changes {
		f(infra)
	}
	p.create(infra)
	return infra
}

func refTo(u *unstructured.Unstructured, name string) clusterv1.ContractVersionedObjectReference {
	gvk := u.GroupVersionKind()
	return clusterv1.ContractVersionedObjectReference{APIGroup: gvk.Group, Kind: gvk.Kind, Name: name}
}

// addMachine makes a Machine, its infrastructure and its bootstrap data.
func (p *fixture) addMachine(name string, changes ...change) *unstructured.Unstructured {
	p.Helper()
	p.addSecret(name)
	return p.addMachineWith(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = &name }, changes...)
}

func (p *fixture) addSecret(name string) {
	p.Helper()
	p.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: p.cluster}},
		Type:       clusterv1.ClusterSecretType,
		Data:       map[string][]byte{"value": []byte("#cloud-config\nruncmd: []\n"), "format": []byte("cloud-config")},
	})
}

func (p *fixture) addMachineWith(name string, ofMachine func(*clusterv1.Machine), ofInfra ...change) *unstructured.Unstructured {
	p.Helper()
	p.addOwner(name, ofMachine)
	return p.addInfra(p.Objects.Machine, name, ofInfra)
}

// addOwner makes a Machine without infrastructure.
func (p *fixture) addOwner(name string, ofMachine func(*clusterv1.Machine)) {
	p.Helper()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: p.cluster}}}
	m.Spec.ClusterName, m.Spec.Version = p.cluster, "v1.36.0"
	m.Spec.InfrastructureRef = refTo(p.Objects.Machine, name)
	if !p.CoreRuns {
		m.Finalizers = []string{clusterv1.MachineFinalizer}
	}
	if ofMachine != nil {
		ofMachine(m)
	}
	if m.Spec.Bootstrap.DataSecretName == nil {
		// Core requires a Secret's name or a reference; nothing reads the latter.
		m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: name}
	}
	p.create(m)
}

// provisionedMachine makes a cluster with a machine and waits for both.
func (p *fixture) provisionedMachine(name string, changes ...change) {
	p.Helper()
	p.addCluster(nil)
	p.addMachine(name, changes...)
	p.untilProvisioned(name)
}

func (p *fixture) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: p.namespace, Name: name}
}

// get fills in o and reports whether it is there.
func (p *fixture) get(ctx context.Context, o client.Object, name string) bool {
	p.Helper()
	err := p.Client.Get(ctx, p.key(name), o)
	if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
		p.Fatalf("read %s: %v", named(o), err)
	}
	return err == nil
}

// infra returns a machine's infrastructure, infraCluster the cluster's, or nil.
func (p *fixture) infra(name string) *unstructured.Unstructured {
	return p.read(p.Objects.Machine, name)
}
func (p *fixture) infraCluster() *unstructured.Unstructured {
	return p.read(p.Objects.Cluster, p.cluster)
}

func (p *fixture) read(like *unstructured.Unstructured, name string) *unstructured.Unstructured {
	p.Helper()
	u := empty(like.GroupVersionKind())
	if !p.get(p.Context(), u, name) {
		return nil
	}
	return u
}

func empty(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// patch changes an object in the API server. It does nothing if the object is gone.
func (p *fixture) patch(o client.Object, name string, f func()) {
	p.Helper()
	if err := p.tryPatch(p.Context(), o, name, f); client.IgnoreNotFound(err) != nil {
		p.Fatalf("change %s: %v", named(o), err)
	}
}

func (p *fixture) tryPatch(ctx context.Context, o client.Object, name string, f func()) error {
	if err := p.Client.Get(ctx, p.key(name), o); err != nil {
		return err
	}
	before := o.DeepCopyObject().(client.Object)
	f()
	return p.Client.Patch(ctx, o, client.MergeFrom(before))
}

func (p *fixture) patchInfraCluster(changes ...change) {
	p.Helper()
	u := empty(p.Objects.Cluster.GroupVersionKind())
	p.patch(u, p.cluster, func() { apply(u, changes) })
}

func apply(o client.Object, changes []change) {
	for _, f := range changes {
		f(o)
	}
}

func unannotated(key string) change {
	return func(o client.Object) {
		all := o.GetAnnotations()
		delete(all, key)
		o.SetAnnotations(all)
	}
}

// pause sets spec.paused of the Cluster.
func (p *fixture) pause(paused bool) {
	p.Helper()
	c := &clusterv1.Cluster{}
	p.patch(c, p.cluster, func() { c.Spec.Paused = &paused })
}

func (p *fixture) delete(o client.Object, name string) {
	p.Helper()
	o.SetNamespace(p.namespace)
	o.SetName(name)
	if err := p.Client.Delete(p.Context(), o); client.IgnoreNotFound(err) != nil {
		p.Fatalf("delete %s: %v", named(o), err)
	}
}

func (p *fixture) deleteInfra(name string) {
	p.Helper()
	p.delete(empty(p.Objects.Machine.GroupVersionKind()), name)
}

func (p *fixture) deleteInfraCluster() {
	p.Helper()
	p.delete(empty(p.Objects.Cluster.GroupVersionKind()), p.cluster)
}

func (p *fixture) deleteMachine(name string) {
	p.Helper()
	p.delete(&clusterv1.Machine{}, name)
}

// vanish removes an object with all its finalizers.
func (p *fixture) vanish(ctx context.Context, o client.Object, name string) {
	p.Helper()
	o.SetNamespace(p.namespace)
	o.SetName(name)
	err := p.Client.Delete(ctx, o)
	if err == nil {
		err = p.tryPatch(ctx, o, name, func() { o.SetFinalizers(nil) })
	}
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		p.Fatalf("remove %s: %v", named(o), err)
	}
}

func (p *fixture) untilClusterProvisioned() {
	p.Helper()
	p.until(p.Limits.Provision, "status.initialization.provisioned of the InfraCluster", func() string {
		return p.lacksProvisioned(p.infraCluster())
	})
}

func (p *fixture) untilProvisioned(name string) {
	p.Helper()
	p.until(p.Limits.Provision, "status.initialization.provisioned and spec.providerID of the InfraMachine", func() string {
		infra := p.infra(name)
		if missing := p.lacksProvisioned(infra); missing != "" {
			return missing
		}
		if providerID(infra) == "" {
			return "spec.providerID is empty"
		}
		return ""
	})
}

func (p *fixture) lacksProvisioned(u *unstructured.Unstructured) string {
	switch {
	case u == nil:
		return "the object is gone"
	case !provisioned(u):
		return "not provisioned; " + describe(u)
	}
	return ""
}

func (p *fixture) untilGone(what string, name string, read func() *unstructured.Unstructured) {
	p.Helper()
	p.until(p.Limits.Delete, what+" "+name+" is gone", func() string {
		if u := read(); u != nil {
			return describe(u)
		}
		return ""
	})
}

func (p *fixture) untilInfraGone(name string) {
	p.Helper()
	p.untilGone("the InfraMachine", name, func() *unstructured.Unstructured { return p.infra(name) })
}

func (p *fixture) untilInfraClusterGone() {
	p.Helper()
	p.untilGone("the InfraCluster", p.cluster, p.infraCluster)
}

// describe returns the state of an object for messages.
func describe(u *unstructured.Unstructured) string {
	text := []string{"finalizers " + strings.Join(u.GetFinalizers(), ", ")}
	if !u.GetDeletionTimestamp().IsZero() {
		text = append(text, "in deletion")
	}
	for _, c := range conditions(u) {
		text = append(text, fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(text, "; ")
}

func provisioned(u *unstructured.Unstructured) bool {
	is, _, _ := unstructured.NestedBool(u.Object, "status", "initialization", "provisioned")
	return is
}

func providerID(u *unstructured.Unstructured) string { return text(u, "spec", "providerID") }

func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

// cleanUp deletes the objects of the namespace, waits for their end, and deletes the
// namespace.
func (p *fixture) cleanUp(ctx context.Context) {
	p.unblock(ctx)
	if p.Objects.Pool != nil {
		if last := p.poll(ctx, p.Limits.Delete, func() string { return p.removePools(ctx) }); last != "" {
			p.reportLeft(last)
		}
	}
	for _, kind := range []*unstructured.Unstructured{p.Objects.Machine, p.Objects.Cluster} {
		last := p.poll(ctx, p.Limits.Delete, func() string { return p.remove(ctx, kind) })
		if last != "" {
			p.reportLeft(last)
		}
	}
	for _, list := range []client.ObjectList{&clusterv1.MachineList{}, &clusterv1.ClusterList{}} {
		p.each(ctx, list, func(o client.Object) { p.vanish(ctx, o, o.GetName()) })
	}
	p.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}})
}

func (p *fixture) reportLeft(what string) {
	if k, ok := p.T.(keeper); ok {
		k.Left("namespace " + p.namespace + ": " + what)
	}
	p.Logf("left in namespace %s: %s", p.namespace, what)
}

// unblock removes what blocks a deletion: pauses, and the kit's own finalizers.
func (p *fixture) unblock(ctx context.Context) {
	p.alone = true
	c := &clusterv1.Cluster{}
	no := false
	p.tryPatch(ctx, c, p.cluster, func() { c.Spec.Paused = &no; c.SetAnnotations(nil) })
	for _, kind := range []*unstructured.Unstructured{p.Objects.Machine, p.Objects.Cluster} {
		p.each(ctx, listOf(kind), func(o client.Object) { p.unblockOne(ctx, o) })
	}
}

func (p *fixture) unblockOne(ctx context.Context, o client.Object) {
	p.tryPatch(ctx, o, o.GetName(), func() {
		apply(o, []change{unannotated(clusterv1.PausedAnnotation), unannotated(clusterv1.ManagedByAnnotation), withoutHold})
	})
}

func withoutHold(o client.Object) {
	var kept []string
	for _, f := range o.GetFinalizers() {
		if f != holdFinalizer {
			kept = append(kept, f)
		}
	}
	o.SetFinalizers(kept)
}

// remove deletes all objects of a kind and returns which still exist.
func (p *fixture) remove(ctx context.Context, kind *unstructured.Unstructured) string {
	list := listOf(kind)
	switch err := p.Client.List(ctx, list, client.InNamespace(p.namespace)); {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return "" // the kind is not defined, so it has no objects
	case err != nil:
		return fmt.Sprintf("any %s, which cannot be listed: %v", kind.GetKind(), err)
	}
	var still []string
	meta.EachListItem(list, func(o runtime.Object) error {
		still = append(still, named(o.(client.Object)))
		if o.(client.Object).GetDeletionTimestamp().IsZero() {
			p.Client.Delete(ctx, o.(client.Object))
		}
		return nil
	})
	return strings.Join(still, ", ")
}
