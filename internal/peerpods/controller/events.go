// SPDX-License-Identifier: Apache-2.0

package controller

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
)

// reporter emits Events. The library deduplicates them.
type reporter struct{ *controllers.Recorder }

// warn emits a Warning Event on the PeerPod and its Pod.
func (r reporter) warn(pp *v1alpha1.PeerPod, reason, action, note string) {
	r.both(pp, corev1.EventTypeWarning, reason, action, note)
}

// tell emits a Normal Event on the PeerPod and its Pod.
func (r reporter) tell(pp *v1alpha1.PeerPod, reason, action, note string) {
	r.both(pp, corev1.EventTypeNormal, reason, action, note)
}

func (r reporter) both(pp *v1alpha1.PeerPod, kind, reason, action, note string) {
	own := &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "PeerPod",
		Namespace: pp.Namespace, Name: pp.Name, UID: pp.UID, ResourceVersion: pp.ResourceVersion,
	}
	if claims.PodName(pp) == "" || claims.PodUID(pp) == "" {
		r.Emit(own, nil, kind, reason, action, note)
		return
	}
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pp.Namespace, Name: claims.PodName(pp), UID: claims.PodUID(pp)}
	r.Emit(own, pod, kind, reason, action, note)
	r.Emit(pod, own, kind, reason, action, note)
}
