// SPDX-License-Identifier: Apache-2.0

package apply

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
)

func (a *Applier) emit(o runtime.Object, reason, note string) {
	a.Events.Eventf(o, nil, corev1.EventTypeNormal, reason, actionApply, "%s", note)
}

// warn emits a Warning Event unless it repeats the last one.
func (a *Applier) warn(o *unstructured.Unstructured, reason, note string) {
	ref := refOf(o)
	if a.warned[ref][reason] == note {
		return
	}
	if a.warned == nil {
		a.warned = map[Ref]map[string]string{}
	}
	if a.warned[ref] == nil {
		a.warned[ref] = map[string]string{}
	}
	a.warned[ref][reason] = note
	a.Events.Eventf(o, nil, corev1.EventTypeWarning, reason, actionApply, "%s", failure.Shorten(note, failure.NoteSize))
}

func (a *Applier) clearWarnings(o *unstructured.Unstructured, reasons ...string) {
	for _, r := range reasons {
		delete(a.warned[refOf(o)], r)
	}
}
