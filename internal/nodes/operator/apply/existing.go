// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// admit returns the objects that this applier may write, and an error for each other
// one. Ours are those that are not there yet, that are listed, that name the
// inventory, and that may be adopted. An account that is there already does what it is
// for, so that it is left alone without an error, unless it lacks an annotation that
// is wanted: clouds know accounts by those.
func (a *Applier) admit(ctx context.Context, listed []Ref, desired []item) (own []item, failed []error) {
	for _, d := range desired {
		var foreign foreignError
		err := a.admitOne(ctx, listed, d)
		switch {
		case err == nil:
			own = append(own, d)
			a.Events.Clear(d.object, ReasonForeign)
		case !errors.As(err, &foreign):
			failed = append(failed, fmt.Errorf("%s: %w", refOf(d.object), err))
		case !d.kind.createOnly || foreign.lacks != "":
			a.warn(d.object, ReasonForeign, err.Error())
			failed = append(failed, fmt.Errorf("%s: %w", refOf(d.object), err))
		}
	}
	return own, failed
}

func (a *Applier) admitOne(ctx context.Context, listed []Ref, d item) error {
	if slices.ContainsFunc(listed, refOf(d.object).same) {
		return nil
	}
	existing, err := a.existing(ctx, d.object)
	if existing == nil || err != nil {
		return err
	}
	owner := existing.GetAnnotations()[OwnerAnnotation]
	if owner == a.Inventory.String() || existing.GetAnnotations()[AdoptAnnotation] == Allow || owner == "" && a.Adopts != nil && a.Adopts(existing) {
		return nil
	}
	return foreignError{refOf(existing), owner, lacking(d.object.GetAnnotations(), existing.GetAnnotations())}
}

// lacking returns the first annotation, except for our own, whose value is not the
// wanted one.
func lacking(wanted, has map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if key != OwnerAnnotation && has[key] != wanted[key] {
			return key
		}
	}
	return ""
}

type foreignError struct {
	ref   Ref
	owner string
	// lacks is an annotation, if there is one, that is wanted of it.
	lacks string
}

func (e foreignError) Error() string {
	owner, where := "something else has made it", ""
	if e.owner != "" {
		owner = "it is of the inventory " + e.owner
	}
	if e.ref.Namespace != "" {
		where = " --namespace " + e.ref.Namespace
	}
	return fmt.Sprintf("it is there already, and %s: it is left as it is; to have it replaced, and removed with the rest later: kubectl annotate %s %s%s %s=%s",
		owner, strings.ToLower(e.ref.Kind), e.ref.Name, where, AdoptAnnotation, Allow)
}

// recreate replaces an object with an immutable field that changed. A dry run
// finds what the API server would refuse before the old object is deleted.
// After a crash between the two, the next pass makes the new one, because there
// is none.
func (a *Applier) recreate(ctx context.Context, d item, existing *unstructured.Unstructured) (bool, error) {
	if _, _, err := a.dryRun(ctx, d, existing); err != nil {
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
