// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Difference is an object that [Applier.Sync] would write.
type Difference struct {
	Ref Ref
	// Before is nil if there is no such object, After if it would be removed. Neither
	// has what only the API server or an Applier keeps: versions, times, status, sums.
	Before, After map[string]any
}

// Compare returns what Sync would write, and what the API server would make of
// it; it only asks. What Sync would remove is in it if there is an inventory.
func (a *Applier) Compare(ctx context.Context, objects []client.Object) ([]Difference, error) {
	desired, err := a.prepare(objects)
	if err != nil {
		return nil, err
	}
	var all []Difference
	var failed []error
	for _, d := range desired {
		var before, after *unstructured.Unstructured
		// Controllers write status at any time.
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
			before, after, err = a.trial(ctx, d)
			return err
		})
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", refOf(d.object), err))
			continue
		}
		was, is := shown(before, after), shown(after, before)
		if !reflect.DeepEqual(was, is) {
			all = append(all, Difference{refOf(d.object), was, is})
		}
	}
	removed, err := a.compareRemoved(ctx, desired)
	return append(all, removed...), errors.Join(append(failed, err)...)
}

// compareRemoved returns what is listed, says that it is of the inventory, and is not
// wanted.
func (a *Applier) compareRemoved(ctx context.Context, desired []item) (all []Difference, err error) {
	if a.Inventory.Name == "" {
		return nil, nil
	}
	listed, err := a.inventory(ctx)
	if err != nil {
		return nil, err
	}
	wanted := refs(desired)
	for _, f := range listed.list {
		if slices.ContainsFunc(wanted, f.same) {
			continue
		}
		o := f.object()
		if err := a.Client.Get(ctx, client.ObjectKeyFromObject(o), o); apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		if o.GetAnnotations()[OwnerAnnotation] == a.Inventory.String() {
			all = append(all, Difference{Ref: f, Before: shown(o, nil)})
		}
	}
	return all, nil
}

// trial makes a dry run of a write. Before is nil if there is none.
func (a *Applier) trial(ctx context.Context, d item) (before, after *unstructured.Unstructured, err error) {
	if d.kind.pods {
		if _, err := a.addConfigHash(ctx, d.object); err != nil {
			return nil, nil, err
		}
	}
	if before, err = a.existing(ctx, d.object); err == nil {
		_, after, err = a.dryRun(ctx, d, before)
	}
	return before, after, err
}

// shown returns the parts of an object that matter in a comparison.
func shown(o, other *unstructured.Unstructured) map[string]any {
	if o == nil {
		return nil
	}
	c := o.DeepCopy().Object
	delete(c, "status")
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink"} {
		unstructured.RemoveNestedField(c, "metadata", field)
	}
	unstructured.RemoveNestedField(c, "spec", "template", "metadata", "creationTimestamp")
	without(c, []string{"metadata", "annotations"}, SpecHashAnnotation, MadeHashAnnotation, OwnerAnnotation, GenerationAnnotation)
	// Objects that were installed by hand have no hash of the configuration.
	both := false
	if other != nil {
		_, both, _ = unstructured.NestedString(other.Object, hashPath...)
	}
	if !both {
		without(c, hashPath[:4], ConfigHashAnnotation)
	}
	return c
}

// without removes keys of a map, and the map if it is empty then.
func without(fields map[string]any, path []string, keys ...string) {
	all, _, _ := unstructured.NestedMap(fields, path...)
	for _, key := range keys {
		delete(all, key)
	}
	if unstructured.RemoveNestedField(fields, path...); len(all) > 0 {
		unstructured.SetNestedMap(fields, all, path...)
	}
}
