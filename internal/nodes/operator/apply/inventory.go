// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// inventoryKey is the key of the list in the inventory's ConfigMap.
const inventoryKey = "objects.json"

// Ref names an object. Namespace is empty for those of the cluster.
type Ref struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns a text such as "Deployment kube-system/x".
func (r Ref) String() string {
	return r.Kind + " " + strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")
}

// Resource returns the plural of the kind, as used in URLs.
func (r Ref) Resource() string {
	kind := strings.ToLower(r.Kind)
	if stem, is := strings.CutSuffix(kind, "policy"); is {
		return stem + "policies"
	}
	return kind + "s"
}

// same reports whether two name one object: a new version of a kind's group is
// another name of it.
func (r Ref) same(other Ref) bool {
	r.Version, other.Version = "", ""
	return r == other
}

func (r Ref) object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind})
	o.SetNamespace(r.Namespace)
	o.SetName(r.Name)
	return o
}

func refOf(o client.Object) Ref {
	gvk := o.GetObjectKind().GroupVersionKind()
	return Ref{gvk.Group, gvk.Version, gvk.Kind, o.GetNamespace(), o.GetName()}
}

func refs(items []item) []Ref {
	all := make([]Ref, len(items))
	for i, it := range items {
		all[i] = refOf(it.object)
	}
	return all
}

// inventory is the list as it was read, with the version that a write replaces:
// a write on top of another's, or of an old copy, is refused.
type inventory struct {
	object *corev1.ConfigMap
	list   []Ref
}

func (a *Applier) inventory(ctx context.Context) (*inventory, error) {
	i := &inventory{object: &corev1.ConfigMap{}}
	err := a.Client.Get(ctx, a.Inventory, i.object)
	if apierrors.IsNotFound(err) {
		i.object.Name, i.object.Namespace = a.Inventory.Name, a.Inventory.Namespace
		return i, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inventory %s: %w", a.Inventory, err)
	}
	return i, i.parse()
}

func (i *inventory) parse() error {
	if err := json.Unmarshal([]byte(i.object.Data[inventoryKey]), &i.list); err != nil {
		return fmt.Errorf("inventory ConfigMap %s, key %q: %w: delete the ConfigMap to begin a new one; what left the bundle meanwhile stays then",
			client.ObjectKeyFromObject(i.object), inventoryKey, err)
	}
	return nil
}

// Forget removes the inventory, for good. While objects are in it, of which a
// cache may not know yet, that is an error: [Applier.Sync] without objects has to
// remove them first.
func (a *Applier) Forget(ctx context.Context) error {
	i := &inventory{object: &corev1.ConfigMap{}}
	i.object.Name, i.object.Namespace = a.Inventory.Name, a.Inventory.Namespace
	if err := a.live(ctx, i.object); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := i.parse(); err != nil {
		return err
	}
	if len(i.list) > 0 {
		return fmt.Errorf("inventory %s still lists %d objects", a.Inventory, len(i.list))
	}
	uid, version := i.object.UID, i.object.ResourceVersion
	return client.IgnoreNotFound(a.Client.Delete(ctx, i.object, client.Preconditions{UID: &uid, ResourceVersion: &version}))
}

// record notes what will be applied, beside what was, before anything is: after
// a crash nothing is forgotten.
func (a *Applier) record(ctx context.Context, i *inventory, objects []Ref) error {
	all := slices.Clone(i.list)
	for _, o := range objects {
		if !slices.ContainsFunc(all, o.same) {
			all = append(all, o)
		}
	}
	return a.note(ctx, i, all)
}

// note writes the list if it is another.
func (a *Applier) note(ctx context.Context, i *inventory, all []Ref) error {
	if len(i.list) == len(all) && !slices.ContainsFunc(all, func(r Ref) bool { return !slices.Contains(i.list, r) }) {
		return nil
	}
	slices.SortFunc(all, func(x, y Ref) int { return strings.Compare(fmt.Sprint(x), fmt.Sprint(y)) })
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	i.object.Data = map[string]string{inventoryKey: string(text)}
	if i.object.ResourceVersion == "" {
		err = a.Client.Create(ctx, i.object, client.FieldOwner(a.Manager))
	} else {
		err = a.Client.Update(ctx, i.object, client.FieldOwner(a.Manager))
	}
	if err != nil {
		return fmt.Errorf("inventory %s: %w", a.Inventory, err)
	}
	i.list = all
	return nil
}

// prune removes what is recorded and not wanted any more, and then forgets it.
func (a *Applier) prune(ctx context.Context, i *inventory, objects []Ref) (pruned []Ref, err error) {
	var failed []error
	left := slices.Clone(objects)
	for _, f := range i.list {
		if slices.ContainsFunc(objects, f.same) {
			continue
		}
		removed, err := a.pruneOne(ctx, f)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s, which left the bundle: %w", f, err))
			left = append(left, f)
		} else if removed {
			pruned = append(pruned, f)
		}
	}
	return pruned, errors.Join(append(failed, a.note(ctx, i, left))...)
}

// pruneOne leaves alone what does not say that it is of this inventory.
func (a *Applier) pruneOne(ctx context.Context, f Ref) (bool, error) {
	o := f.object()
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) {
		// The cache may lack an object that was just made, so ask the API server.
		o.SetNamespace(f.Namespace)
		o.SetName(f.Name)
		err = a.live(ctx, o)
	}
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, err
	case o.GetAnnotations()[OwnerAnnotation] != a.Inventory.String():
		return false, nil
	case o.GetDeletionTimestamp() != nil:
		return false, errFinalizers(o)
	}
	if err := a.remove(ctx, o); err != nil {
		return false, err
	}
	a.Events.Emit(o, nil, corev1.EventTypeNormal, ReasonPruned, actPrune, "it left the bundle")
	return true, nil
}
