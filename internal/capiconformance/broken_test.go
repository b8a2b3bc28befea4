// SPDX-License-Identifier: Apache-2.0

package capiconformance_test

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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
	admit  admission
	// got is called with what was read, and answers the error to show.
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
}

func newBroken(w *world) *broken {
	b := &broken{
		world:  w,
		define: func(*unstructured.Unstructured) {},
		admit:  admitted,
		got:    func(_ client.ObjectKey, _ client.Object, err error) error { return err },
		write:  func(client.Object, bool, map[string]any) bool { return true },
		around: func(_ context.Context, _ request, next next) (reconcile.Result, error) { return next() },
		create: w.cloud.CreateInstance, remove: w.cloud.DeleteInstance, list: w.cloud.ListInstances,
		deaf: true,
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
