// SPDX-License-Identifier: Apache-2.0

// Package webhooks has the admission webhooks of the kinds in
// api/infrastructure, and the conversion between their versions.
//
// Schemas say what one field may be. These webhooks check the rest: what
// depends on the user, and what needs a parser.
package webhooks

import (
	"context"
	"fmt"
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/topology"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// object is one whose spec is an S.
type object[S any] interface {
	client.Object
	// Content returns the spec; of a template it is that of what is made, which comes with metadata.
	Content() (*S, *clusterv1.ObjectMeta)
}

// rules of a kind T whose spec is an S.
type rules[T object[S], S any] struct {
	// valid returns errors in a spec, and warnings about valid but unwise
	// settings.
	valid func(spec *S, path *field.Path, template bool) (admission.Warnings, field.ErrorList)
	// fixed returns what of a spec has changed and must not.
	fixed func(before, after *S, path *field.Path) field.ErrorList
	// fixedObject, if any, says the same where it depends on more than the spec.
	fixedObject func(before, after T) field.ErrorList
}

var spec = field.NewPath("spec")

// ValidateCreate validates an object before it is created.
func (r rules[T, S]) ValidateCreate(_ context.Context, o T) (admission.Warnings, error) {
	is, meta := o.Content()
	warnings, errs := r.valid(is, specPath(meta), meta != nil)
	return warnings, invalid(o, append(errs, validMeta(meta)...))
}

// ValidateUpdate validates an object before it changes. An unchanged spec is not
// validated: a finalizer can always be removed, and objects older than a rule stay
// usable.
func (r rules[T, S]) ValidateUpdate(ctx context.Context, before, after T) (warnings admission.Warnings, err error) {
	var errs field.ErrorList
	dryRun := rehearsed(ctx, after)
	if !dryRun {
		errs = identityKept(before, after)
	}
	was, _ := before.Content()
	is, meta := after.Content()
	if !apiequality.Semantic.DeepEqual(was, is) {
		var wrong field.ErrorList
		warnings, wrong = r.valid(is, specPath(meta), meta != nil)
		errs = append(errs, wrong...)
		if meta == nil || !dryRun {
			errs = append(errs, r.fixed(was, is, specPath(meta))...)
		}
		if r.fixedObject != nil {
			errs = append(errs, r.fixedObject(before, after)...)
		}
	}
	if after.GetDeletionTimestamp().IsZero() {
		errs = append(errs, validMeta(meta)...)
	}
	return warnings, invalid(after, errs)
}

// ValidateDelete is never called.
func (r rules[T, S]) ValidateDelete(context.Context, T) (admission.Warnings, error) { return nil, nil }

func specPath(meta *clusterv1.ObjectMeta) *field.Path {
	if meta == nil {
		return spec
	}
	return spec.Child("template", "spec")
}

func validMeta(meta *clusterv1.ObjectMeta) field.ErrorList {
	if meta == nil {
		return nil
	}
	return meta.Validate(spec.Child("template", "metadata"))
}

func invalid[T client.Object](o T, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	kind := reflect.TypeFor[T]().Elem().Name()
	return apierrors.NewInvalid(infrav1.GroupVersion.WithKind(kind).GroupKind(), o.GetName(), errs)
}

// rehearsed reports whether the request is a dry run of Cluster API's topology
// controller, which creates a new template if it would be a change.
func rehearsed(ctx context.Context, o metav1.Object) bool {
	req, err := admission.RequestFromContext(ctx)
	return err == nil && topology.IsDryRunRequest(req, o)
}

// identityKept: an object without its identity, or with that of another, would
// leave its resources behind. `clusterctl move` alone drops it, from objects
// that it is about to remove without touching what they have; where they go to
// they are made with it.
func identityKept(before, after metav1.Object) (errs field.ErrorList) {
	_, moved := after.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]
	for _, name := range []string{infrav1.KeyAnnotation, infrav1.ClusterKeyAnnotation, infrav1.BeganAnnotation, infrav1.ProviderAnnotation} {
		was, is := before.GetAnnotations()[name], after.GetAnnotations()[name]
		if was != "" && was != is && (is != "" || !moved) {
			path := field.NewPath("metadata", "annotations").Key(name)
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("must stay %q: what this object has made is found by it", was)))
		}
	}
	return errs
}

// fixedField returns the error of a field that has a value and must keep it.
func fixedField(path *field.Path, value any, why string) field.ErrorList {
	return field.ErrorList{field.Invalid(path, value, "cannot change once it is set: "+why)}
}

// template makes the rules of a template, whose spec never changes.
func template[T object[S], S any](valid func(*S, *field.Path, bool) (admission.Warnings, field.ErrorList)) rules[T, S] {
	unchanged := func(_, _ *S, path *field.Path) field.ErrorList {
		return field.ErrorList{field.Forbidden(path, "a template cannot change: make another one and refer to that")}
	}
	return rules[T, S]{valid: valid, fixed: unchanged}
}
