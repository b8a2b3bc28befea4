// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
			a.clearWarnings(d.object, ReasonForeign)
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
	existing := &unstructured.Unstructured{}
	existing.SetGroupVersionKind(d.object.GroupVersionKind())
	if err := a.Client.Get(ctx, client.ObjectKeyFromObject(d.object), existing); err != nil {
		return client.IgnoreNotFound(err)
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

// foreignError is the error about an object that others have created.
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

// unlist removes an object from the inventory that somebody else created just before
// us: listed, it would be taken for ours.
func (a *Applier) unlist(ctx context.Context, i *inventory, made Ref) error {
	err := a.note(ctx, i, slices.DeleteFunc(slices.Clone(i.list), made.same))
	if apierrors.IsConflict(err) {
		return nil // whoever wrote the list tries again
	}
	return err
}
