// SPDX-License-Identifier: Apache-2.0

// Package conversion turns objects of api/infrastructure/v1beta1 into those of v1beta2
// and back, without loss: what the other version has no field for is kept in an
// annotation.
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
	// HubAnnotation on an object of v1beta1 holds the same in v1beta2. It is a
	// name that Cluster API's topology controller ignores.
	HubAnnotation = "cluster.x-k8s.io/conversion-data"
	// SpokeAnnotation on an object of v1beta2 holds the same as it was written
	// in v1beta1. Only objects that lose something have it.
	SpokeAnnotation = "infrastructure.outrigger.dev/v1beta1-data"
)

// Object is a pointer to an object of the API.
type Object[T any] interface {
	*T
	client.Object
	metav1.ObjectMetaAccessor
}

// Converter returns the converter of one kind for a webhook builder: H is its type in v1beta2,
// S the one in v1beta1.
func Converter[H, S any, PH Object[H], PS Object[S]](scheme *runtime.Scheme) (conversion.Converter, error) {
	spoke := conversion.NewSpokeConverter[PH](PS(new(S)), FromHub[H, S, PH, PS], ToHub[H, S, PH, PS])
	return conversion.NewHubSpokeConverter(PH(new(H)), spoke)(scheme)
}

// ToHub converts to the version that is stored.
func ToHub[H, S any, PH Object[H], PS Object[S]](_ context.Context, src PS, dst PH) error {
	metaOf(src).DeepCopyInto(metaOf(dst))
	var before *H
	if err := take(dst, HubAnnotation, &before); err != nil {
		return fmt.Errorf("annotation %s is not as it was written: remove it, or apply the object in the version it was read in: %w", HubAnnotation, err)
	}
	written := bare[S, PS](src)
	hub, err := toHub[H, S](written, before)
	if err != nil {
		return err
	}
	back, err := convert[H, S](hub, down)
	if err == nil && !apiequality.Semantic.DeepEqual(back, written) {
		err = put(dst, SpokeAnnotation, written)
	}
	setContent[H, PH](dst, hub)
	return err
}

// toHub prefers what was there before, if anything: verbatim where the object still says the same,
// and in fields that it does not have.
func toHub[H, S any](written *S, before *H) (*H, error) {
	if before == nil {
		return convert[S, H](written, up)
	}
	same, err := convert[H, S](before, down)
	if err != nil || apiequality.Semantic.DeepEqual(same, written) {
		return before, err
	}
	back, err := convert[S, H](same, up)
	if err != nil {
		return nil, err
	}
	was, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err != nil {
		return nil, err
	}
	kept, err := runtime.DefaultUnstructuredConverter.ToUnstructured(back)
	if err != nil {
		return nil, err
	}
	return convert[S, H](written, func(now fields) {
		up(now)
		restore(now, was, kept)
	})
}

// FromHub converts from the version that is stored.
func FromHub[H, S any, PH Object[H], PS Object[S]](_ context.Context, src PH, dst PS) error {
	metaOf(src).DeepCopyInto(metaOf(dst))
	hub := bare[H, PH](src)
	content, err := convert[H, S](hub, down)
	if err != nil {
		return err
	}
	// An annotation that cannot be parsed is ignored: it must not make the object
	// unreadable.
	var written *S
	if err := take(dst, SpokeAnnotation, &written); err == nil && written != nil {
		if same, err := convert[S, H](written, up); err == nil && apiequality.Semantic.DeepEqual(same, hub) {
			content = written
		}
	}
	back, err := convert[S, H](content, up)
	if err == nil && !apiequality.Semantic.DeepEqual(back, hub) {
		err = put(dst, HubAnnotation, hub)
	}
	setContent[S, PS](dst, content)
	return err
}

// convert returns an object in the other version; change does what is to be done with the
// fields that differ.
func convert[A, B any](src *A, change func(fields)) (*B, error) {
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(src)
	if err != nil {
		return nil, err
	}
	change(o)
	dst := new(B)
	return dst, runtime.DefaultUnstructuredConverter.FromUnstructured(o, dst)
}

func metaOf(o metav1.ObjectMetaAccessor) *metav1.ObjectMeta {
	return o.GetObjectMeta().(*metav1.ObjectMeta)
}

// setContent replaces all but type and metadata.
func setContent[T any, P Object[T]](dst P, content *T) {
	meta, gvk := *metaOf(dst), dst.GetObjectKind().GroupVersionKind()
	*dst = *content
	*metaOf(dst) = meta
	dst.GetObjectKind().SetGroupVersionKind(gvk)
}

func bare[T any, P Object[T]](o P) *T {
	content := *o
	*metaOf(P(&content)) = metav1.ObjectMeta{}
	P(&content).GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return &content
}

// take reads an annotation, if there is one, into v and removes it.
func take(o metav1.Object, name string, v any) error {
	annotations := o.GetAnnotations()
	data, found := annotations[name]
	if !found {
		return nil
	}
	delete(annotations, name)
	o.SetAnnotations(annotations)
	return json.Unmarshal([]byte(data), v)
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
