// SPDX-License-Identifier: Apache-2.0

package peerpod

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
)

// Patches are the JSON merge patches (RFC 7386) that bring an object in the
// API up to date; nil where nothing changed. Spec and status are two writes
// since the API keeps them apart.
type Patches struct{ Spec, Status []byte }

// Diff applies changes to pp and answers what to write. The patches carry the
// resource version, so one that was decided from an old object is refused with
// a conflict.
func Diff(pp *v1alpha1.PeerPod, changes ...Change) (Patches, error) {
	old := pp.DeepCopy()
	for _, change := range changes {
		change(pp)
	}
	var p Patches
	var err error
	if old.Spec.InstanceID != pp.Spec.InstanceID {
		p.Spec, err = merge(pp, "spec", map[string]string{"instanceID": pp.Spec.InstanceID})
	}
	if err == nil && !equality.Semantic.DeepEqual(old.Status, pp.Status) {
		p.Status, err = merge(pp, "status", statusPatch(&pp.Status))
	}
	return p, err
}

// statusPatch says null for what is gone: a merge patch keeps what it does not
// mention.
func statusPatch(s *v1alpha1.PeerPodStatus) map[string]any {
	return map[string]any{
		"phase": s.Phase, "conditions": s.Conditions, "instance": s.Instance,
		"steps": s.Steps, "lastError": s.LastError,
	}
}

func merge(pp *v1alpha1.PeerPod, part string, content any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": version(pp), part: content})
}

func version(pp *v1alpha1.PeerPod) map[string]any {
	meta := map[string]any{"uid": pp.UID}
	if pp.ResourceVersion != "" {
		meta["resourceVersion"] = pp.ResourceVersion
	}
	return meta
}

// WithoutFinalizer answers the merge patch that takes our finalizer off.
func WithoutFinalizer(pp *v1alpha1.PeerPod) ([]byte, error) { return finalizers(pp, false) }

// WithFinalizer answers the merge patch that puts our finalizer on.
func WithFinalizer(pp *v1alpha1.PeerPod) ([]byte, error) { return finalizers(pp, true) }

func finalizers(pp *v1alpha1.PeerPod, ours bool) ([]byte, error) {
	list := []string{}
	for _, name := range pp.Finalizers {
		if name != Finalizer {
			list = append(list, name)
		}
	}
	if ours {
		list = append(list, Finalizer)
	}
	meta := version(pp)
	meta["finalizers"] = list
	return json.Marshal(map[string]any{"metadata": meta})
}
