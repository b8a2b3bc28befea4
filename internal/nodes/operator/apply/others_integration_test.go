// SPDX-License-Identifier: Apache-2.0

//go:build integration

package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// refused wants a pass to leave the named objects alone, and says what it said.
func (p *place) refused(objects []client.Object, names ...string) string {
	p.Helper()
	_, err := p.Sync(p.Context(), objects)
	if err == nil {
		p.Fatalf("%s was taken over", names)
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name+": it is there already") {
			p.Fatalf("error %v, want one about %s", err, name)
		}
	}
	return err.Error()
}

// foreign: what others have made is neither written nor removed, however often it is
// wanted; all else is applied. An account of others is used.
func foreign(p *place) {
	theirs, account := p.configMap("theirs", "key", "theirs"), &corev1.ServiceAccount{ObjectMeta: p.meta("account")}
	account.Labels = nil
	p.must(p.Client.Create(p.Context(), theirs))
	p.must(p.Client.Create(p.Context(), account))
	objects := func() []client.Object {
		return []client.Object{p.configMap("theirs", "key", "ours"), p.configMap("new"), &corev1.ServiceAccount{ObjectMeta: p.meta("account")}}
	}
	for range 2 {
		said := p.refused(objects(), "ConfigMap foreign/theirs")
		if !strings.Contains(said, "something else has made it") || !strings.Contains(said, "kubectl annotate configmap theirs --namespace foreign ccm.outrigger.dev/adopt=allow") || strings.Contains(said, "account") {
			p.Errorf("error %s", said)
		}
	}
	p.get(&corev1.ConfigMap{}, "new")
	cloud := &corev1.ServiceAccount{ObjectMeta: p.meta("account")}
	cloud.Annotations = map[string]string{"cloud.test/role": "x"}
	p.refused([]client.Object{cloud}, "ServiceAccount foreign/account")
	if told := slices.DeleteFunc(p.events.reasons, func(r string) bool { return r != ReasonForeign }); len(told) != 2 {
		p.Errorf("two passes, and one about the account, told %q", told)
	}
	_, err := p.Sync(p.Context(), nil)
	p.must(err)
	var is corev1.ConfigMap
	p.get(&is, "theirs")
	p.get(account, "account")
	if is.ResourceVersion != theirs.ResourceVersion || len(account.Annotations) > 0 {
		p.Errorf("%v, %v", is, account)
	}
}

// foreignAdopted: whoever allows it has the object replaced, and removed in the end.
func foreignAdopted(p *place) {
	objects := func() []client.Object {
		return []client.Object{p.configMap("annotated", "key", "ours"), p.configMap("known", "key", "ours"), p.configMap("of-another", "key", "ours")}
	}
	for _, o := range objects() {
		cm := o.(*corev1.ConfigMap)
		cm.Data["key"] = "theirs"
		if cm.Name == "of-another" {
			cm.Annotations = map[string]string{OwnerAnnotation: "elsewhere/inventory"}
		}
		p.must(p.Client.Create(p.Context(), cm))
	}
	if said := p.refused(objects(), "ConfigMap foreign-adopted/annotated", "ConfigMap foreign-adopted/known", "ConfigMap foreign-adopted/of-another"); !strings.Contains(said, "it is of the inventory elsewhere/inventory") {
		p.Errorf("error %s", said)
	}
	for _, name := range []string{"annotated", "of-another"} {
		cm := p.configMap(name)
		p.edit(cm, func() {
			if cm.Annotations == nil {
				cm.Annotations = map[string]string{}
			}
			cm.Annotations[AdoptAnnotation] = Allow
		})
	}
	p.Adopts = func(o client.Object) bool { return o.GetName() == "known" }
	p.sync(objects(), names(objects())...)
	p.sync(objects())
	var is corev1.ConfigMap
	p.get(&is, "annotated")
	if is.Data["key"] != "ours" {
		p.Errorf("data %v", is.Data)
	}
	if r := p.sync(nil); len(r.Pruned) != 3 {
		p.Errorf("pruned %v", r.Pruned)
	}
}

// foreignUnseen: somebody else was faster, and a cache does not know it yet.
func foreignUnseen(p *place) {
	p.must(p.Client.Create(p.Context(), p.configMap("a", "key", "theirs")))
	p.unseen = map[string]bool{"a": true}
	if _, err := p.Sync(p.Context(), []client.Object{p.configMap("a")}); !apierrors.IsAlreadyExists(err) {
		p.Fatalf("error %v", err)
	}
	p.unseen = nil
	p.refused([]client.Object{p.configMap("a")}, "ConfigMap foreign-unseen/a")
}

// disowned: kubectl replace drops annotations, and what we made is ours anyway.
func disowned(p *place) {
	p.sync([]client.Object{p.configMap("a", "key", "x")}, "ConfigMap disowned/a")
	a := p.configMap("a")
	p.edit(a, func() { a.Annotations, a.Data = nil, nil })
	p.sync([]client.Object{p.configMap("a", "key", "x")}, "ConfigMap disowned/a")
}

// rounds applies objects and lets somebody change them back, a few times more than
// is taken for chance, and returns the last result and how often it wrote.
func (p *place) rounds(objects func() []client.Object, undo func()) (r Result, wrote int) {
	p.Helper()
	for range oftenWritten + 3 {
		undo()
		var err error
		r, err = p.Sync(p.Context(), objects())
		p.must(err)
		wrote += len(r.Changed)
	}
	return r, wrote
}

func contestedBySomebody(p *place) {
	at := time.Now()
	p.Now = func() time.Time { return at }
	objects := func() []client.Object {
		return []client.Object{p.deployment("d", func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32) })}
	}
	p.sync(objects(), "Deployment contested/d")
	undo := func() {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":7}}`))
		p.must(p.Client.Patch(p.Context(), p.deployment("d"), patch, client.FieldOwner("autoscaler")))
	}
	r, wrote := p.rounds(objects, undo)
	want := "Deployment contested/d: spec.replicas is changed back each time it is written, by autoscaler; it is written with growing backoff: stop one of the two"
	if wrote != oftenWritten || !slices.Equal(r.Contested, []string{want}) || r.Again != firstRest {
		t := fmt.Sprintf("wrote %d times, again in %s: %q", wrote, r.Again, r.Contested)
		p.Fatalf("%s\nwant %d, %s: %q", t, oftenWritten, firstRest, want)
	}
	// It is tried again, for longer and longer; also when it is not changed back
	// any more, for a while.
	at = at.Add(firstRest)
	if r := p.sync(objects(), "Deployment contested/d"); len(r.Contested) != 1 || r.Again != 2*firstRest {
		p.Errorf("after a rest: %q, again in %s", r.Contested, r.Again)
	}
	// While nobody changes it back, nothing is to be done until it is forgotten.
	at = at.Add(2 * firstRest)
	if r := p.sync(objects()); len(r.Contested) != 1 || r.Again != calm {
		p.Errorf("when its rest has passed: %q, again in %s", r.Contested, r.Again)
	}
	at = at.Add(calm)
	if r := p.sync(objects()); len(r.Contested) > 0 || r.Again != 0 {
		p.Errorf("after all is calm: %q, again in %s", r.Contested, r.Again)
	}
	// Something else that is wanted is not a contest.
	r, _ = p.rounds(objects, undo)
	if len(r.Contested) != 1 {
		p.Errorf("it began again: %q", r.Contested)
	}
	p.sync([]client.Object{p.deployment("d", func(d *appsv1.Deployment) { d.Spec.Paused = true })}, "Deployment contested/d")
}

// contestedByWebhook: what is asked of the API server is never what it does.
func contestedByWebhook(p *place) {
	n := 0
	p.Client = interceptor.NewClient(p.Client.(client.WithWatch), interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if o.GetName() == "a" {
				n++
				o.(interface{ UnstructuredContent() map[string]any }).UnstructuredContent()["data"] = map[string]any{"key": "x", "stamp": fmt.Sprint(n)}
			}
			return c.Update(ctx, o, opts...)
		},
	})
	objects := func() []client.Object { return []client.Object{p.configMap("a", "key", "x")} }
	p.sync(objects(), "ConfigMap contested-by-webhook/a")
	p.must(p.Client.Patch(p.Context(), p.configMap("a"), client.RawPatch("application/merge-patch+json", []byte(`{"data":{"by":"hand"}}`))))
	r, wrote := p.rounds(objects, func() {})
	if wrote != oftenWritten || len(r.Contested) != 1 || !strings.Contains(r.Contested[0], "data.stamp is made something else each time, by an admission webhook") {
		p.Errorf("wrote %d times: %q", wrote, r.Contested)
	}
}
