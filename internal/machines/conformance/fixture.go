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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
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

func (r *run) provisionedCluster() *fixture {
	fx := r.newFixture()
	fx.addCluster(nil)
	fx.untilClusterProvisioned()
	return fx
}

// change is made to an object before it is created.
type change func(client.Object)

func annotated(key, value string) change {
	return func(o client.Object) { o.SetAnnotations(labels.Merge(o.GetAnnotations(), labels.Set{key: value})) }
}

func labelled(key, value string) change {
	return func(o client.Object) { o.SetLabels(labels.Merge(o.GetLabels(), labels.Set{key: value})) }
}

// withHold puts the kit's own finalizer on an object, so that the object can still be read
// when the provider has removed its finalizer.
func withHold(o client.Object) { o.SetFinalizers(append(o.GetFinalizers(), holdFinalizer)) }

const holdFinalizer = "capi-conformance.outrigger.dev/hold"

// addCluster creates the Cluster and its infrastructure with the changes applied. It
// returns the infrastructure as the API server returned it.
func (fx *fixture) addCluster(ofCluster func(*clusterv1.Cluster), ofInfra ...change) *unstructured.Unstructured {
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: fx.namespace, Name: fx.cluster}}
	c.Spec.InfrastructureRef = refTo(fx.Objects.Cluster, fx.cluster)
	if !fx.CoreRuns {
		c.Finalizers = []string{clusterv1.ClusterFinalizer}
	}
	if ofCluster != nil {
		ofCluster(c)
	}
	fx.create(c)
	return fx.addInfra(fx.Objects.Cluster, fx.cluster, ofInfra)
}

func (fx *fixture) addInfra(from *unstructured.Unstructured, name string, changes []change) *unstructured.Unstructured {
	infra := instance(from, fx.namespace, fx.cluster, name)
	labelled(clusterv1.ClusterNameLabel, fx.cluster)(infra)
	fx.filtered(infra)
	apply(infra, changes)
	fx.create(infra)
	return infra
}

func refTo(u *unstructured.Unstructured, name string) clusterv1.ContractVersionedObjectReference {
	gvk := u.GroupVersionKind()
	return clusterv1.ContractVersionedObjectReference{APIGroup: gvk.Group, Kind: gvk.Kind, Name: name}
}

func (fx *fixture) addMachine(name string, changes ...change) *unstructured.Unstructured {
	fx.addSecret(name)
	return fx.addMachineWith(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = &name }, changes...)
}

func (fx *fixture) addSecret(name string) {
	fx.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fx.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: fx.cluster}},
		Type:       clusterv1.ClusterSecretType,
		Data:       map[string][]byte{"value": []byte("#cloud-config\nruncmd: []\n"), "format": []byte("cloud-config")},
	})
}

func (fx *fixture) addMachineWith(name string, ofMachine func(*clusterv1.Machine), ofInfra ...change) *unstructured.Unstructured {
	fx.addOwner(name, ofMachine)
	return fx.addInfra(fx.Objects.Machine, name, ofInfra)
}

// addOwner makes a Machine without infrastructure.
func (fx *fixture) addOwner(name string, ofMachine func(*clusterv1.Machine)) {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: fx.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: fx.cluster}}}
	m.Spec.ClusterName, m.Spec.Version = fx.cluster, "v1.36.0"
	m.Spec.InfrastructureRef = refTo(fx.Objects.Machine, name)
	if !fx.CoreRuns {
		m.Finalizers = []string{clusterv1.MachineFinalizer}
	}
	if ofMachine != nil {
		ofMachine(m)
	}
	if m.Spec.Bootstrap.DataSecretName == nil {
		// Core requires a Secret's name or a reference; nothing reads the latter.
		m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: name}
	}
	fx.create(m)
}

func (fx *fixture) provisionedMachine(name string, changes ...change) {
	fx.addCluster(nil)
	fx.addMachine(name, changes...)
	fx.untilProvisioned(name)
}

func (r *run) twoMachines() (fx *fixture, names []string) {
	fx, names = r.newFixture(), []string{"m-" + unique(), "m-" + unique()}
	fx.addCluster(nil)
	for _, name := range names {
		fx.addMachine(name)
	}
	for _, name := range names {
		fx.untilProvisioned(name)
	}
	return fx, names
}

func (fx *fixture) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: fx.namespace, Name: name}
}

func (fx *fixture) get(ctx context.Context, o client.Object, name string) bool {
	err := fx.Client.Get(ctx, fx.key(name), o)
	if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
		fx.Fatalf("read %s: %v", named(o), err)
	}
	return err == nil
}

// infra returns a machine's infrastructure, infraCluster the cluster's, or nil.
func (fx *fixture) infra(name string) *unstructured.Unstructured {
	return fx.read(fx.Objects.Machine, name)
}
func (fx *fixture) infraCluster() *unstructured.Unstructured {
	return fx.read(fx.Objects.Cluster, fx.cluster)
}

func (fx *fixture) read(like *unstructured.Unstructured, name string) *unstructured.Unstructured {
	u := empty(like.GroupVersionKind())
	if !fx.get(fx.Context(), u, name) {
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
func (fx *fixture) patch(o client.Object, name string, f func()) {
	if err := fx.tryPatch(fx.Context(), o, name, f); client.IgnoreNotFound(err) != nil {
		fx.Fatalf("change %s: %v", named(o), err)
	}
}

func (fx *fixture) tryPatch(ctx context.Context, o client.Object, name string, f func()) error {
	if err := fx.Client.Get(ctx, fx.key(name), o); err != nil {
		return err
	}
	before := o.DeepCopyObject().(client.Object)
	f()
	return fx.Client.Patch(ctx, o, client.MergeFrom(before))
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

func (fx *fixture) pause(paused bool) {
	c := &clusterv1.Cluster{}
	fx.patch(c, fx.cluster, func() { c.Spec.Paused = &paused })
}

func (fx *fixture) delete(o client.Object, name string) {
	o.SetNamespace(fx.namespace)
	o.SetName(name)
	if err := fx.Client.Delete(fx.Context(), o); client.IgnoreNotFound(err) != nil {
		fx.Fatalf("delete %s: %v", named(o), err)
	}
}

func (fx *fixture) deleteInfra(name string) {
	fx.delete(empty(fx.Objects.Machine.GroupVersionKind()), name)
}

func (fx *fixture) deleteInfraCluster() {
	fx.delete(empty(fx.Objects.Cluster.GroupVersionKind()), fx.cluster)
}

func (fx *fixture) deleteMachine(name string) {
	fx.delete(&clusterv1.Machine{}, name)
}

// vanish removes an object with all its finalizers.
func (fx *fixture) vanish(ctx context.Context, o client.Object, name string) {
	o.SetNamespace(fx.namespace)
	o.SetName(name)
	err := fx.Client.Delete(ctx, o)
	if err == nil {
		err = fx.tryPatch(ctx, o, name, func() { o.SetFinalizers(nil) })
	}
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		fx.Fatalf("remove %s: %v", named(o), err)
	}
}

func (fx *fixture) untilClusterProvisioned() {
	fx.until(fx.Limits.Provision, "status.initialization.provisioned of the InfraCluster", func() string {
		return fx.lacksProvisioned(fx.infraCluster())
	})
}

func (fx *fixture) untilProvisioned(name string) {
	fx.until(fx.Limits.Provision, "status.initialization.provisioned and spec.providerID of the InfraMachine", func() string {
		infra := fx.infra(name)
		if missing := fx.lacksProvisioned(infra); missing != "" {
			return missing
		}
		if providerID(infra) == "" {
			return "spec.providerID is empty"
		}
		return ""
	})
}

func (fx *fixture) lacksProvisioned(u *unstructured.Unstructured) string {
	switch {
	case u == nil:
		return "the object is gone"
	case !provisioned(u):
		return "not provisioned; " + describe(u)
	}
	return ""
}

func (fx *fixture) untilGone(what string, name string, read func() *unstructured.Unstructured) {
	fx.until(fx.Limits.Delete, what+" "+name+" is gone", func() string {
		if u := read(); u != nil {
			return describe(u)
		}
		return ""
	})
}

func (fx *fixture) untilInfraGone(name string) {
	fx.untilGone("the InfraMachine", name, func() *unstructured.Unstructured { return fx.infra(name) })
}

func (fx *fixture) wantDeleted(name string) {
	fx.deleteMachine(name)
	fx.untilInfraGone(name)
	fx.wantNothingOutside()
}

func (fx *fixture) untilInfraClusterGone() {
	fx.untilGone("the InfraCluster", fx.cluster, fx.infraCluster)
}

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
func (fx *fixture) cleanUp(ctx context.Context) {
	fx.unblock(ctx)
	if fx.Objects.Pool != nil {
		if last := fx.poll(ctx, fx.Limits.Delete, func() string { return fx.removePools(ctx) }); last != "" {
			fx.reportLeft(last)
		}
	}
	for _, kind := range []*unstructured.Unstructured{fx.Objects.Machine, fx.Objects.Cluster} {
		last := fx.poll(ctx, fx.Limits.Delete, func() string { return fx.remove(ctx, kind) })
		if last != "" {
			fx.reportLeft(last)
		}
	}
	for _, list := range []client.ObjectList{&clusterv1.MachineList{}, &clusterv1.ClusterList{}} {
		fx.each(ctx, list, func(o client.Object) { fx.vanish(ctx, o, o.GetName()) })
	}
	fx.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fx.namespace}})
}

func (fx *fixture) reportLeft(what string) {
	fx.Left("namespace " + fx.namespace + ": " + what)
	fx.Logf("left in namespace %s: %s", fx.namespace, what)
}

// unblock removes what blocks a deletion: pauses, and the kit's own finalizers.
func (fx *fixture) unblock(ctx context.Context) {
	fx.alone = true
	c := &clusterv1.Cluster{}
	fx.tryPatch(ctx, c, fx.cluster, func() { c.Spec.Paused = new(false); c.SetAnnotations(nil) })
	for _, kind := range []*unstructured.Unstructured{fx.Objects.Machine, fx.Objects.Cluster} {
		fx.each(ctx, listOf(kind), func(o client.Object) {
			fx.tryPatch(ctx, o, o.GetName(), func() {
				apply(o, []change{unannotated(clusterv1.PausedAnnotation), unannotated(clusterv1.ManagedByAnnotation), withoutHold})
			})
		})
	}
}

func withoutHold(o client.Object) { controllerutil.RemoveFinalizer(o, holdFinalizer) }

// remove deletes all objects of a kind and returns which still exist.
func (fx *fixture) remove(ctx context.Context, kind *unstructured.Unstructured) string {
	list := listOf(kind)
	switch err := fx.Client.List(ctx, list, client.InNamespace(fx.namespace)); {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return "" // the kind is not defined, so it has no objects
	case err != nil:
		return fmt.Sprintf("any %s, which cannot be listed: %v", kind.GetKind(), err)
	}
	var still []string
	meta.EachListItem(list, func(o runtime.Object) error {
		still = append(still, named(o.(client.Object)))
		if o.(client.Object).GetDeletionTimestamp().IsZero() {
			fx.Client.Delete(ctx, o.(client.Object))
		}
		return nil
	})
	return strings.Join(still, ", ")
}
