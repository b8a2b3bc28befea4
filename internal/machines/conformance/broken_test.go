// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// breakage breaks a manager, or what it is installed with.
type breakage func(*broken)

func all(breaks ...breakage) breakage {
	return func(b *broken) {
		for _, f := range breaks {
			f(b)
		}
	}
}

type (
	next    func() (reconcile.Result, error)
	creator func(ctx context.Context, pod, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error)
)

// broken is one process's view of a world, with some of it replaced.
type broken struct {
	world *world
	// define changes a definition before it is installed.
	define func(crd *unstructured.Unstructured)
	// release changes the objects and the metadata of a release.
	release func(components []*unstructured.Unstructured, metadata string) ([]*unstructured.Unstructured, string)
	admit   admission
	// older changes what is read in contract v1beta1.
	older func(*unstructured.Unstructured)
	// got is called with what was read, and returns the error to show.
	got func(key client.ObjectKey, o client.Object, err error) error
	// write changes a merge patch; false: it is not written.
	write func(o client.Object, status bool, patch map[string]any) bool
	// around is a reconciliation.
	around func(ctx context.Context, r request, next next) (reconcile.Result, error)
	create creator
	remove func(ctx context.Context, id string) error
	list   func(ctx context.Context, match map[string]string) ([]provider.Instance, error)
	// deaf says that a creation goes on when its context has ended.
	deaf bool

	// What a process remembers.
	marks map[string]time.Time
	// cluster changes the Clusters that the reconciler reads; nil changes
	// nothing.
	cluster func(c *clusterv1.Cluster)
	number  int
}

func newBroken(w *world) *broken {
	b := &broken{
		world:  w,
		define: func(*unstructured.Unstructured) {},
		release: func(all []*unstructured.Unstructured, metadata string) ([]*unstructured.Unstructured, string) {
			return all, metadata
		},
		admit:  admitted,
		older:  func(*unstructured.Unstructured) {},
		got:    func(_ client.ObjectKey, _ client.Object, err error) error { return err },
		write:  func(client.Object, bool, map[string]any) bool { return true },
		around: func(_ context.Context, _ request, next next) (reconcile.Result, error) { return next() },
		create: w.cloud.CreateInstance, remove: w.cloud.DeleteInstance, list: w.cloud.ListInstances,
		deaf: true, number: len(w.all) + 1,
	}
	if w.breaks != nil {
		w.breaks(b)
	}
	return b
}

// seen changes what a manager reads of kinds.
func seen(f func(o client.Object), kinds ...string) breakage {
	return func(b *broken) {
		got := b.got
		b.got = func(key client.ObjectKey, o client.Object, err error) error {
			err = got(key, o, err)
			if err == nil && slices.Contains(kinds, kindOf(o)) {
				f(o)
			}
			return err
		}
	}
}

// written changes what a manager writes into the metadata and spec of a kind,
// writtenStatus what into its status. False: nothing is written.
func written(kind string, f func(o client.Object, patch map[string]any) bool) breakage {
	return writes(kind, false, f)
}

func writtenStatus(kind string, f func(o client.Object, patch map[string]any) bool) breakage {
	return writes(kind, true, f)
}

func writes(kind string, wanted bool, f func(o client.Object, patch map[string]any) bool) breakage {
	return func(b *broken) {
		write := b.write
		b.write = func(o client.Object, status bool, patch map[string]any) bool {
			if !write(o, status, patch) {
				return false
			}
			return status != wanted || kindOf(o) != kind || f(o, patch)
		}
	}
}

// reconciles replaces the reconciliation of a kind.
func reconciles(kind string, f func(b *broken, ctx context.Context, r request, next next) (reconcile.Result, error)) breakage {
	return func(b *broken) {
		around := b.around
		b.around = func(ctx context.Context, r request, after next) (reconcile.Result, error) {
			if r.kind != kind {
				return around(ctx, r, after)
			}
			return f(b, ctx, r, func() (reconcile.Result, error) { return around(ctx, r, after) })
		}
	}
}

// defines changes the definition of a kind.
func defines(kind string, f func(crd *unstructured.Unstructured)) breakage {
	return func(b *broken) {
		define := b.define
		b.define = func(crd *unstructured.Unstructured) {
			define(crd)
			if got, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind"); got == kind {
				f(crd)
			}
		}
	}
}

// creates replaces creations.
func creates(f func(b *broken, ctx context.Context, pod, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec, create creator) (*provider.Instance, error)) breakage {
	return func(b *broken) {
		create := b.create
		b.create = func(ctx context.Context, pod, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
			return f(b, ctx, pod, key, config, spec, create)
		}
	}
}

// raw is the API as others see it: what a breakage does by itself.
func (b *broken) raw() client.Client { return b.world.memory }

// fetch returns an object, or nil.
func fetch[T client.Object](b *broken, o T, key client.ObjectKey) (found T) {
	if b.raw().Get(context.Background(), key, o) == nil {
		found = o
	}
	return found
}

func (b *broken) machineOf(r request) *infrav1.OutriggerMachine {
	return fetch(b, &infrav1.OutriggerMachine{}, r.NamespacedName)
}

func (b *broken) infraClusterOf(r request) *infrav1.OutriggerCluster {
	return fetch(b, &infrav1.OutriggerCluster{}, r.NamespacedName)
}

// ownerOf returns the Machine of a machine, clusterOf the Cluster; nil if there
// is none.
func (b *broken) ownerOf(r request) *clusterv1.Machine {
	return fetch(b, &clusterv1.Machine{}, r.NamespacedName)
}

func (b *broken) clusterOf(o client.Object) *clusterv1.Cluster {
	return fetch(b, &clusterv1.Cluster{}, client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetLabels()[clusterv1.ClusterNameLabel]})
}

func isPaused(o client.Object, c *clusterv1.Cluster) bool {
	_, annotated := o.GetAnnotations()[clusterv1.PausedAnnotation]
	return annotated || c != nil && c.Spec.Paused != nil && *c.Spec.Paused
}

// patch writes into an object what f changes; a deletion is not looked at.
func (b *broken) patch(o client.Object, f func()) {
	before := o.DeepCopyObject().(client.Object)
	f()
	if data, err := client.MergeFrom(before).Data(o); err == nil && string(data) != "{}" {
		b.raw().Patch(context.Background(), o, client.MergeFrom(before))
	}
}

func (b *broken) patchStatus(o client.Object, f func()) {
	before := o.DeepCopyObject().(client.Object)
	f()
	if data, err := client.MergeFrom(before).Data(o); err == nil && string(data) != "{}" {
		b.raw().Status().Patch(context.Background(), o, client.MergeFrom(before))
	}
}

// since returns for how long something has been so, in this process.
func (b *broken) since(what string) time.Duration {
	if b.marks == nil {
		b.marks = map[string]time.Time{}
	}
	at, ok := b.marks[what]
	if !ok {
		at = time.Now()
		b.marks[what] = at
	}
	return time.Since(at)
}

// first reports whether it is asked for the first time.
func (b *broken) first(what string) bool {
	_, seen := b.marks[what]
	b.since(what)
	return !seen
}

// isFirst reports whether an object has the UID that its name had at first: it was
// not moved.
func (b *broken) isFirst(o client.Object) bool {
	w := b.world
	w.mu.Lock()
	defer w.mu.Unlock()
	key := kindOf(o) + o.GetNamespace() + "/" + o.GetName()
	if w.uids[key] == "" {
		w.uids[key] = o.GetUID()
	}
	return w.uids[key] == o.GetUID()
}

func deleting(o client.Object) bool { return !o.GetDeletionTimestamp().IsZero() }

func done(i infrav1.Initialization) bool { return i.Provisioned != nil && *i.Provisioned }

// ignoring skips reconciliations of machines, or of clusters.
func ignoringMachine(when func(b *broken, r request, m *infrav1.OutriggerMachine) bool) breakage {
	return reconciles("OutriggerMachine", func(b *broken, _ context.Context, r request, next next) (reconcile.Result, error) {
		if m := b.machineOf(r); m != nil && when(b, r, m) {
			return reconcile.Result{}, nil
		}
		return next()
	})
}

func ignoringCluster(when func(b *broken, r request, c *infrav1.OutriggerCluster) bool) breakage {
	return reconciles("OutriggerCluster", func(b *broken, _ context.Context, r request, next next) (reconcile.Result, error) {
		if c := b.infraClusterOf(r); c != nil && when(b, r, c) {
			return reconcile.Result{}, nil
		}
		return next()
	})
}

// afterMachine and afterCluster do something more after a reconciliation.
func afterMachine(f func(b *broken, r request, m *infrav1.OutriggerMachine)) breakage {
	return reconciles("OutriggerMachine", func(b *broken, _ context.Context, r request, next next) (reconcile.Result, error) {
		result, err := next()
		if m := b.machineOf(r); m != nil {
			b.isFirst(m)
			f(b, r, m)
		}
		return result, err
	})
}

func afterCluster(f func(b *broken, r request, c *infrav1.OutriggerCluster)) breakage {
	return reconciles("OutriggerCluster", func(b *broken, _ context.Context, r request, next next) (reconcile.Result, error) {
		result, err := next()
		if c := b.infraClusterOf(r); c != nil {
			f(b, r, c)
		}
		return result, err
	})
}

// unpausedWhile has the reconciler believe that a Cluster is not paused, while
// it looks at objects of a kind.
func unpausedWhile(kind string, when func(o client.Object) bool) breakage {
	return clusterSeenAs(kind, when, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
}

// pausedForEver has the reconciler believe that the pause of a Cluster never
// ends, while it looks at objects of a kind.
func pausedForEver(kind string, when func(o client.Object) bool) breakage {
	return clusterSeenAs(kind, when, func(c *clusterv1.Cluster) {
		if c.Spec.Paused != nil {
			yes := true
			c.Spec.Paused = &yes
		}
	})
}

// clusterSeenAs changes the Clusters that the reconciler reads while it looks at
// objects of a kind.
func clusterSeenAs(kind string, when func(o client.Object) bool, change func(c *clusterv1.Cluster)) breakage {
	return all(
		reconciles(kind, func(b *broken, _ context.Context, r request, next next) (reconcile.Result, error) {
			var o client.Object = &infrav1.OutriggerMachine{}
			switch kind {
			case "OutriggerCluster":
				o = &infrav1.OutriggerCluster{}
			case "DockerMachinePool":
				o = &infrav1.DockerMachinePool{}
			}
			if b.raw().Get(context.Background(), r.NamespacedName, o) == nil && when(o) {
				b.cluster = change
			}
			defer func() { b.cluster = nil }()
			return next()
		}),
		func(b *broken) {
			seen(func(o client.Object) {
				if b.cluster != nil {
					b.cluster(o.(*clusterv1.Cluster))
				}
			}, "Cluster")(b)
		})
}

// misspelt changes a condition on its way, and back when it is read, so that
// the reconciler itself is content.
func misspelt(kind, condition string, change func(c map[string]any), back func(c *metav1.Condition)) breakage {
	return all(
		writtenStatus(kind, func(_ client.Object, patch map[string]any) bool {
			eachCondition(patch, condition, change)
			return true
		}),
		seen(func(o client.Object) {
			list := o.(interface{ ContractStatus() *infrav1.Status }).ContractStatus().Conditions
			for i := range list {
				if list[i].Type == condition {
					back(&list[i])
				}
			}
		}, kind))
}

func eachCondition(patch map[string]any, kind string, f func(c map[string]any)) {
	list, _, _ := unstructured.NestedFieldNoCopy(patch, "status", "conditions")
	items, _ := list.([]any)
	for _, item := range items {
		if c := item.(map[string]any); c["type"] == kind {
			f(c)
		}
	}
}

// renamed changes providerIDs on their way, and back when they are read.
func renamed(to func(m client.Object, id string) string) breakage {
	const kept = "example.com/real-provider-id"
	return all(
		written("OutriggerMachine", func(o client.Object, patch map[string]any) bool {
			if id, ok, _ := unstructured.NestedString(patch, "spec", "providerID"); ok {
				unstructured.SetNestedField(patch, to(o, id), "spec", "providerID")
				unstructured.SetNestedField(patch, id, "metadata", "annotations", kept)
			}
			return true
		}),
		seen(func(o client.Object) {
			if id := o.GetAnnotations()[kept]; id != "" {
				o.(*infrav1.OutriggerMachine).Spec.ProviderID = id
			}
		}, "OutriggerMachine"))
}
