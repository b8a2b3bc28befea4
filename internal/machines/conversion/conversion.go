// SPDX-License-Identifier: Apache-2.0

// Package conversion turns objects of api/infrastructure/v1alpha1 and v1beta1 into
// those of v1beta2 and back, without loss: what the other version has no field for
// is kept in an annotation.
package conversion

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
)

const (
	// HubAnnotation on an object of v1alpha1 holds the same in v1beta2. It is a
	// name that Cluster API's topology controller ignores.
	HubAnnotation = "cluster.x-k8s.io/conversion-data"
	// SpokeAnnotation on an object of v1beta2 holds the same as it was written
	// in v1alpha1. Only objects that lose something have it.
	SpokeAnnotation = "infrastructure.outrigger.dev/v1alpha1-data"
)

// object is a pointer to an object of the API.
type object[T any] interface {
	*T
	client.Object
	metav1.ObjectMetaAccessor
}

// Kind converts the objects of one kind: H is the type in v1beta2, S the one in
// v1alpha1.
type Kind[H, S any, PH object[H], PS object[S]] struct {
	// up and down copy spec and status.
	up   func(*S, *H)
	down func(*H, *S)
	// keep copies to the first what S has no field for, from what was there
	// before somebody changed the object as an S.
	keep func(hub, before *H)
}

// Converter returns the converter for a webhook builder.
func (k Kind[H, S, PH, PS]) Converter(scheme *runtime.Scheme) (conversion.Converter, error) {
	return conversion.NewHubSpokeConverter(PH(new(H)), k.spoke())(scheme)
}

func (k Kind[H, S, PH, PS]) spoke() conversion.SpokeConverter[PH] {
	return conversion.NewSpokeConverter[PH](PS(new(S)), k.FromHub, k.ToHub)
}

// With converts the objects of a kind that has a second version beside the one that is
// stored.
func With[H, S, B any, PH object[H], PS object[S], PB object[B]](k Kind[H, S, PH, PS], other Kind[H, B, PH, PB]) func(*runtime.Scheme) (conversion.Converter, error) {
	return func(scheme *runtime.Scheme) (conversion.Converter, error) {
		return conversion.NewHubSpokeConverter(PH(new(H)), k.spoke(), other.spoke())(scheme)
	}
}

// ToHub converts to the version that is stored.
func (k Kind[H, S, PH, PS]) ToHub(_ context.Context, src PS, dst PH) error {
	copyMeta(src, dst)
	var before H
	found, err := take(dst, HubAnnotation, &before)
	if err != nil {
		return fmt.Errorf("annotation %s is not as it was written: remove it, or apply the object in the version it was read in: %w", HubAnnotation, err)
	}
	content := k.restoredHub((*S)(src), &before, found)
	var back S
	if k.down(&content, &back); !sameContent[S, PS](&back, (*S)(src)) {
		if err := put(dst, SpokeAnnotation, bare[S, PS](src)); err != nil {
			return err
		}
	}
	setContent[H, PH](dst, &content)
	return nil
}

// restoredHub prefers what was there before: verbatim where src still says the
// same, and in fields that src does not have.
func (k Kind[H, S, PH, PS]) restoredHub(src *S, before *H, found bool) H {
	var hub H
	k.up(src, &hub)
	if !found {
		return hub
	}
	var same S
	if k.down(before, &same); sameContent[S, PS](&same, src) {
		return *before
	}
	k.keep(&hub, before)
	return hub
}

// FromHub converts from the version that is stored.
func (k Kind[H, S, PH, PS]) FromHub(_ context.Context, src PH, dst PS) error {
	copyMeta(src, dst)
	var content, written S
	k.down((*H)(src), &content)
	// An annotation that cannot be parsed is ignored: it must not make the object
	// unreadable.
	if found, err := take(dst, SpokeAnnotation, &written); found && err == nil {
		var same H
		if k.up(&written, &same); sameContent[H, PH](&same, (*H)(src)) {
			content = written
		}
	}
	var back H
	if k.up(&content, &back); !sameContent[H, PH](&back, (*H)(src)) {
		if err := put(dst, HubAnnotation, bare[H, PH](src)); err != nil {
			return err
		}
	}
	setContent[S, PS](dst, &content)
	return nil
}

func copyMeta(src, dst metav1.ObjectMetaAccessor) {
	src.GetObjectMeta().(*metav1.ObjectMeta).DeepCopyInto(dst.GetObjectMeta().(*metav1.ObjectMeta))
}

// setContent replaces all but type and metadata.
func setContent[T any, P object[T]](dst P, content *T) {
	meta, gvk := *dst.GetObjectMeta().(*metav1.ObjectMeta), dst.GetObjectKind().GroupVersionKind()
	*dst = *content
	*dst.GetObjectMeta().(*metav1.ObjectMeta) = meta
	dst.GetObjectKind().SetGroupVersionKind(gvk)
}

// bare returns the object without type and metadata.
func bare[T any, P object[T]](o P) *T {
	content := *o
	*P(&content).GetObjectMeta().(*metav1.ObjectMeta) = metav1.ObjectMeta{}
	P(&content).GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return &content
}

func sameContent[T any, P object[T]](a, b *T) bool {
	return apiequality.Semantic.DeepEqual(bare[T, P](a), bare[T, P](b))
}

// take reads an annotation into v and removes it.
func take(o metav1.Object, name string, v any) (found bool, err error) {
	annotations := o.GetAnnotations()
	data, found := annotations[name]
	if !found {
		return false, nil
	}
	delete(annotations, name)
	o.SetAnnotations(annotations)
	return true, json.Unmarshal([]byte(data), v)
}

func put(o metav1.Object, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("what the other version has no field for cannot be written to annotation %s: %w", name, err)
	}
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = string(data)
	o.SetAnnotations(annotations)
	return nil
}
