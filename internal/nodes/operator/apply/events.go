// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func (a *Applier) emit(o runtime.Object, reason, note string) {
	a.Events.Eventf(o, nil, corev1.EventTypeNormal, reason, actionApply, "%s", note)
}

// warn emits a Warning Event unless it repeats the last one. It truncates the note
// to an Event's limit (1024 bytes).
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
	if len(note) > 1000 {
		note = strings.ToValidUTF8(note[:1000], "") + " ..."
	}
	a.Events.Eventf(o, nil, corev1.EventTypeWarning, reason, actionApply, "%s", note)
}

func (a *Applier) clearWarnings(o *unstructured.Unstructured, reasons ...string) {
	for _, r := range reasons {
		delete(a.warned[refOf(o)], r)
	}
}
