// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// recreate replaces an object with an immutable field that changed. A dry run
// finds what the API server would refuse before the old object is deleted.
// After a crash between the two, the next pass makes the new one, because there
// is none.
func (a *Applier) recreate(ctx context.Context, d item, existing *unstructured.Unstructured) (bool, error) {
	trial := d.object.DeepCopy()
	trial.SetName(trialName(d.object.GetName()))
	if err := a.Client.Create(ctx, trial, client.DryRunAll, client.FieldOwner(a.Manager)); err != nil {
		a.warn(existing, ReasonCreateFailed, err.Error())
		return false, fmt.Errorf("it has to be recreated, and that would be refused: %w", err)
	}
	a.emit(existing, ReasonRecreating, strings.Join(d.kind.immutable, ".")+" changed, which cannot be changed in place")
	if err := a.remove(ctx, existing); err != nil {
		return true, err
	}
	if _, err := a.create(ctx, d); err != nil {
		return true, err
	}
	a.emit(d.object, ReasonRecreated, "made again")
	return true, nil
}

// trialName returns an unused name of at most 253 characters, the limit of names.
func trialName(name string) string {
	const suffix = "-dry-run"
	return name[:min(len(name), 253-len(suffix))] + suffix
}

// remove deletes exactly the object that was looked at. That it is gone is success, and
// an error that finalizers keep it.
func (a *Applier) remove(ctx context.Context, o *unstructured.Unstructured) error {
	uid := o.GetUID()
	err := a.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		a.warn(o, ReasonDeleteFailed, err.Error())
		return err
	}
	left := o.DeepCopy()
	if err := a.live(ctx, left); err != nil {
		return client.IgnoreNotFound(err)
	}
	if left.GetUID() != uid {
		return nil
	}
	return errFinalizers(left)
}

// live reads an object past a cache, which would not know yet, by a dry-run patch.
func (a *Applier) live(ctx context.Context, o client.Object) error {
	return a.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte("{}")), client.DryRunAll)
}

func errFinalizers(o *unstructured.Unstructured) error {
	return fmt.Errorf("it is being deleted, held by the finalizers %v: what put them there has to remove them", o.GetFinalizers())
}
