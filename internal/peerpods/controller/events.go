// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
)

// maxNote is the longest note of an Event that the API takes.
const maxNote = 1024

// reporter writes Events. The library deduplicates them.
type reporter struct{ recorder events.EventRecorder }

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
		r.write(own, nil, kind, reason, action, note)
		return
	}
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pp.Namespace, Name: claims.PodName(pp), UID: claims.PodUID(pp)}
	r.write(own, pod, kind, reason, action, note)
	r.write(pod, own, kind, reason, action, note)
}

// write emits an Event; related may be nil.
func (r reporter) write(about, related runtime.Object, kind, reason, action, note string) {
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-3], "") + "..."
	}
	r.recorder.Eventf(about, related, kind, reason, action, "%s", note)
}
