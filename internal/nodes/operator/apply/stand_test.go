// SPDX-License-Identifier: Apache-2.0

//go:build integration

package apply

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/test/cluster"
)

// place is a namespace of a real API server, in which everything is written
// through an Applier that counts.
type place struct {
	*testing.T
	*Applier
	namespace string
	// writes are those that reached the API server, trials included.
	writes []string
	// unseen are objects, by name, that the cache which is read does not know yet.
	unseen map[string]bool
	events *recorded
}

// recorded keeps the reasons of Events.
type recorded struct{ reasons []string }

func (r *recorded) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	r.reasons = append(r.reasons, reason)
}

// newClient is one of an API server of its own.
func newClient(t *testing.T) client.WithWatch {
	c := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	all, err := client.NewWithWatch(c.RESTConfig(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func newPlace(t *testing.T, c client.WithWatch, namespace string) *place {
	p := &place{T: t, namespace: namespace, events: &recorded{}}
	p.must(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	counting := interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if p.unseen[key.Name] {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			p.writes = append(p.writes, "create "+o.GetName())
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			verb := "update "
			if len((&client.UpdateOptions{}).ApplyOptions(opts).DryRun) > 0 {
				verb = "try "
			}
			p.writes = append(p.writes, verb+o.GetName())
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			p.writes = append(p.writes, "delete "+o.GetName())
			return c.Delete(ctx, o, opts...)
		},
	})
	p.Applier = &Applier{Client: counting, Events: controllers.NewRecorder(p.events, nil), Manager: "test", Inventory: client.ObjectKey{Namespace: namespace, Name: "inventory"}}
	return p
}

func (p *place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// sync applies, and fails unless just the named objects are written.
func (p *place) sync(objects []client.Object, changed ...string) Result {
	p.Helper()
	p.writes = nil
	r, err := p.Sync(p.Context(), objects)
	p.must(err)
	if got := fmt.Sprint(r.Changed); got != fmt.Sprint(changed) && len(r.Changed)+len(changed) > 0 {
		p.Fatalf("changed %s, want %s", got, changed)
	}
	if len(changed) == 0 && len(r.Pruned) == 0 && len(p.writes) > 0 {
		p.Fatalf("nothing was to change, and it wrote: %q", p.writes)
	}
	return r
}

func (p *place) get(o client.Object, name string) {
	p.Helper()
	p.must(p.Client.Get(p.Context(), client.ObjectKey{Namespace: p.namespace, Name: name}, o))
}

// edit changes an object as a person would, again when a controller was faster.
func (p *place) edit(o client.Object, change func()) {
	p.Helper()
	p.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := p.Client.Get(p.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		return p.Client.Update(p.Context(), o)
	}))
}

func (p *place) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: p.namespace, Labels: map[string]string{"app": name}}
}

func (p *place) deployment(name string, more ...func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: p.meta(name), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.test/image"}}},
		},
	}}
	for _, change := range more {
		change(d)
	}
	return d
}

func (p *place) configMap(name string, data ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: p.meta(name), Data: map[string]string{}}
	for i := 0; i+1 < len(data); i += 2 {
		cm.Data[data[i]] = data[i+1]
	}
	return cm
}

// wantedOf is the sum of an object's content.
func wantedOf(p *place, o client.Object) string {
	p.Helper()
	o = o.DeepCopyObject().(client.Object)
	u, _, err := toUnstructured(o, p.Client.Scheme())
	p.must(err)
	return wantedHash(u)
}
