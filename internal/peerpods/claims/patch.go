// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
)

// Patches are the JSON merge patches (RFC 7386) that bring an object in the
// API up to date; nil where nothing changed. Spec, with the finalizers, and
// status are two writes since the API keeps them apart.
type Patches struct{ Spec, Status []byte }

// Diff applies changes to pp and returns what to write. The patches carry the
// resource version, so one that was decided from an old object is refused with
// a conflict.
func Diff(pp *v1alpha1.PeerPod, changes ...Change) (Patches, error) {
	old := pp.DeepCopy()
	for _, change := range changes {
		change(pp)
	}
	main := map[string]any{}
	meta := version(pp)
	if !slices.Equal(old.Finalizers, pp.Finalizers) {
		meta["finalizers"] = pp.Finalizers
		main["metadata"] = meta
	}
	if old.Spec.InstanceID != pp.Spec.InstanceID {
		main["metadata"], main["spec"] = meta, map[string]string{"instanceID": pp.Spec.InstanceID}
	}
	var p Patches
	var err error
	if len(main) > 0 {
		p.Spec, err = json.Marshal(main)
	}
	if err == nil && !equality.Semantic.DeepEqual(old.Status, pp.Status) {
		p.Status, err = json.Marshal(map[string]any{"metadata": version(pp), "status": statusPatch(&pp.Status)})
	}
	return p, err
}

// statusPatch sets removed fields to null: a merge patch keeps what it does not
// mention.
func statusPatch(s *v1alpha1.PeerPodStatus) map[string]any {
	return map[string]any{
		"phase": s.Phase, "conditions": s.Conditions, "instance": s.Instance,
		"steps": s.Steps, "lastError": s.LastError,
	}
}

func version(pp *v1alpha1.PeerPod) map[string]any {
	meta := map[string]any{"uid": pp.UID}
	if pp.ResourceVersion != "" {
		meta["resourceVersion"] = pp.ResourceVersion
	}
	return meta
}

// WithoutFinalizer returns the merge patch that removes our finalizer.
func WithoutFinalizer(pp *v1alpha1.PeerPod) ([]byte, error) {
	list := append([]string{}, pp.Finalizers...) // an empty one is [], not null
	list = slices.DeleteFunc(list, func(name string) bool { return name == Finalizer })
	meta := version(pp)
	meta["finalizers"] = list
	return json.Marshal(map[string]any{"metadata": meta})
}
