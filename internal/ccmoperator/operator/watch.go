// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"os"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/outrigger/outrigger/internal/ccmoperator/apply"
)

func everything(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: cluster}}
}

// watchOperands wakes whoever an applied object is of, by its inventory.
func watchOperands(b *builder.Builder, requests func(owner string) []reconcile.Request) {
	wake := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return requests(o.GetAnnotations()[apply.OwnerAnnotation])
	})
	for _, gvk := range apply.Kinds() {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(gvk)
		b.Watches(o, wake, builder.WithPredicates(changed()))
	}
}

// changed lets through what is more than a new version of the same: somebody
// wrote an object as it was, or only managedFields became others.
func changed() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !reflect.DeepEqual(plainCopy(e.ObjectOld), plainCopy(e.ObjectNew))
	}}
}

func plainCopy(o client.Object) client.Object {
	c := o.DeepCopyObject().(client.Object)
	c.SetResourceVersion("")
	c.SetManagedFields(nil)
	return c
}

// always wakes a controller at its start, though there may be no object at all,
// from time to time, and when a file was replaced, as mounted ConfigMaps are.
func always(every time.Duration, file string) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		all := reconcile.Request{NamespacedName: cluster}
		go tick(ctx, every, func() { q.Add(all) })
		go onChange(ctx, file, func() { q.Add(all) })
		return nil
	})
}

// periodically asks from time to time for what there is.
func periodically(every time.Duration, what handler.MapFunc) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go tick(ctx, every, func() {
			for _, r := range what(ctx, nil) {
				q.Add(r)
			}
		})
		return nil
	})
}

// tick calls now, and then from time to time until the context ends.
func tick(ctx context.Context, every time.Duration, call func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		call()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// onChange calls when a file was replaced, made or removed.
func onChange(ctx context.Context, file string, call func()) {
	if file == "" {
		return
	}
	seen := stamp(file)
	tick(ctx, pollFile, func() {
		if is := stamp(file); is != seen {
			seen = is
			call()
		}
	})
}

// pollFile is how often a mounted file is looked at. The kubelet itself takes a
// minute to replace it.
const pollFile = 5 * time.Second

// stamp changes with a file's content or its presence.
func stamp(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return err.Error()
	}
	return info.ModTime().String() + " " + info.Mode().String()
}
