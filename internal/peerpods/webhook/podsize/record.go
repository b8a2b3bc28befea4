// SPDX-License-Identifier: Apache-2.0

package podsize

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/peerpods/webhook/guestlimits"
)

// AnnotationRecord holds a Record as JSON.
const AnnotationRecord = guestlimits.Annotation

// Record says what was taken from a pod. A second call for the same pod sizes
// it from the record, so that defaults which a LimitRange puts in place of what
// was taken do not count; whoever sets limits in the VM finds them here.
type Record struct {
	// Pod is what was taken from spec.resources.
	Pod *Resources `json:"pod,omitempty"`
	// Containers is what was taken from containers and init containers, by name.
	Containers map[string]Resources `json:"containers,omitempty"`
	// Sized are the annotations that were set. One that has another value now
	// is the user's.
	Sized map[string]string `json:"sized,omitempty"`
}

// Resources are requests and limits of cpu, memory and GPUs.
type Resources struct {
	Requests corev1.ResourceList `json:"requests,omitempty"`
	Limits   corev1.ResourceList `json:"limits,omitempty"`
}

// ReadRecord returns the record in a pod's annotations, an empty one if there
// is none.
func ReadRecord(annotations map[string]string) (Record, error) {
	var r Record
	text, found := annotations[AnnotationRecord]
	if !found {
		return r, nil
	}
	if err := checkLength(text); err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Record{}, fmt.Errorf("annotation %s: %w; it is written by the webhook: remove it to have the pod sized again", AnnotationRecord, err)
	}
	return r, nil
}

func checkLength(text string) error {
	if len(text) > guestlimits.MaxRecord {
		return fmt.Errorf("annotation %s has %d bytes, and at most %d are read: it is written by the webhook, about 100 bytes for each container that has requests or limits", AnnotationRecord, len(text), guestlimits.MaxRecord)
	}
	return nil
}

// restore puts back into the pod what the record says was taken.
func (r Record) restore(pod *corev1.Pod) {
	for c := range containers(&pod.Spec) {
		if was, found := r.Containers[c.Name]; found {
			was.putBack(&c.Resources)
		}
	}
	if r.Pod == nil {
		return
	}
	if pod.Spec.Resources == nil {
		pod.Spec.Resources = &corev1.ResourceRequirements{}
	}
	r.Pod.putBack(pod.Spec.Resources)
}

func (was Resources) putBack(r *corev1.ResourceRequirements) {
	r.Requests = overlay(r.Requests, was.Requests)
	r.Limits = overlay(r.Limits, was.Limits)
}

// overlay lets from win over list, for the resources that are taken.
func overlay(list, from corev1.ResourceList) corev1.ResourceList {
	out := list.DeepCopy()
	for name, q := range only(from) {
		if out == nil {
			out = corev1.ResourceList{}
		}
		out[name] = q
	}
	return out
}

// only returns the part of a list that is taken, nil if there is none.
func only(list corev1.ResourceList) corev1.ResourceList { return orElse(nil, list) }

// recordOf returns what must be taken from the pod. Its Sized is empty.
func recordOf(pod *corev1.Pod) Record {
	r := Record{Containers: map[string]Resources{}}
	for c := range containers(&pod.Spec) {
		if was, any := takenFrom(c.Resources); any {
			r.Containers[c.Name] = was
		}
	}
	if pod.Spec.Resources != nil {
		if was, any := takenFrom(*pod.Spec.Resources); any {
			r.Pod = &was
		}
	}
	return r
}

func takenFrom(r corev1.ResourceRequirements) (Resources, bool) {
	was := Resources{Requests: only(r.Requests), Limits: only(r.Limits)}
	return was, len(was.Requests)+len(was.Limits) > 0
}

func (r Record) text() (string, error) {
	if r.Pod == nil && len(r.Containers) == 0 && len(r.Sized) == 0 {
		return "", nil
	}
	b, err := json.Marshal(r)
	return string(b), err
}

// maxQuantity is the length of the longest quantity that is read, in bytes.
const maxQuantity = 64

// hugeExponent is what resource.Quantity would take and then calculate with in
// megabytes of digits: 1e999999 has ten bytes.
var hugeExponent = regexp.MustCompile(`[eE][+-]?0*[1-9][0-9]{2,}"?$`)

// ReadList decodes a list of resources that a user may have written, whatever
// his numbers would cost.
func ReadList(data []byte) (corev1.ResourceList, error) {
	var texts map[string]json.RawMessage
	if len(data) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(data, &texts); err != nil {
		return nil, err
	}
	for name, text := range texts {
		if len(text) > maxQuantity || hugeExponent.Match(text) {
			return nil, fmt.Errorf("%.80q: %.40q is not a quantity that anything has", name, text)
		}
	}
	var list corev1.ResourceList
	err := json.Unmarshal(data, &list)
	return list, err
}

// UnmarshalJSON reads both lists by ReadList.
func (was *Resources) UnmarshalJSON(data []byte) error {
	var texts struct{ Requests, Limits json.RawMessage }
	if err := json.Unmarshal(data, &texts); err != nil {
		return err
	}
	var err, limitsErr error
	was.Requests, err = ReadList(texts.Requests)
	was.Limits, limitsErr = ReadList(texts.Limits)
	return errors.Join(err, limitsErr)
}
