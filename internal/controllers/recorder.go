// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// API servers keep Events for an hour. What lasts longer is emitted again then. A
// warning with another message is repeated after ten minutes: a message may contain a
// number that changes with each attempt.
const (
	repeatUnchanged = time.Hour
	repeatChanged   = 10 * time.Minute
)

// maxNote is how many bytes the note of an Event has at most (events.k8s.io/v1).
const maxNote = 1024

// Recorder emits Events, with notes that the API server takes. It remembers what was
// emitted, so that attempts that fail again and again emit one Event: a comparison of
// conditions is not enough, as each attempt changes them for a moment. A nil Recorder
// emits nothing.
type Recorder struct {
	events events.EventRecorder
	now    func() time.Time

	mu sync.Mutex
	// emitted holds the last Event of each topic of each object.
	emitted map[object]map[string]emission
	pruned  time.Time
}

// NewRecorder returns a Recorder that emits to events; now is the clock, nil is time.Now.
func NewRecorder(events events.EventRecorder, now func() time.Time) *Recorder {
	if now == nil {
		now = time.Now
	}
	return &Recorder{events: events, now: now, emitted: map[object]map[string]emission{}, pruned: now()}
}

// object identifies an object. Objects with the same name have one entry even if they
// are not the same; see emission.uid.
type object struct {
	kind reflect.Type
	gvk  schema.GroupVersionKind // of an unstructured object
	name types.NamespacedName
}

func objectOf(o client.Object) object {
	of := object{kind: reflect.TypeOf(o), name: client.ObjectKeyFromObject(o)}
	if u, ok := o.(*unstructured.Unstructured); ok {
		of.gvk = u.GroupVersionKind()
	}
	return of
}

type emission struct {
	uid        types.UID
	generation int64
	state      string
	at         time.Time
}

// Emit emits an Event; related may be nil.
func (r *Recorder) Emit(about, related runtime.Object, kind, reason, action, note string) {
	if r != nil {
		r.events.Eventf(about, related, kind, reason, action, "%s", Clip(note, maxNote))
	}
}

// Warn emits a Warning Event unless it repeats an earlier one of the object and reason.
func (r *Recorder) Warn(o client.Object, reason, action, note string) {
	if r.isNew(o, reason, note, repeatChanged) {
		r.Emit(o, nil, corev1.EventTypeWarning, reason, action, note)
	}
}

// Changed reports whether the state of a topic of an object is not that of the last
// call, or that was an hour ago.
func (r *Recorder) Changed(o client.Object, topic, state string) bool {
	return r.isNew(o, topic, state, 0)
}

// isNew reports whether an Event is not a repetition, and then records it. Another state
// of an object with the same generation is a repetition during the pause.
func (r *Recorder) isNew(o client.Object, topic, state string, pause time.Duration) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.prune(now)
	topics := r.emitted[objectOf(o)]
	last, ok := topics[topic]
	ago := now.Sub(last.at)
	if ok && last.uid == o.GetUID() && ago < repeatUnchanged && (last.state == state || last.generation == o.GetGeneration() && ago < pause) {
		return false
	}
	if topics == nil {
		topics = map[string]emission{}
		r.emitted[objectOf(o)] = topics
	}
	topics[topic] = emission{o.GetUID(), o.GetGeneration(), state, now}
	return true
}

// Clear forgets topics of an object that no longer hold; all of them if none is named,
// for an object that is healthy or gone.
func (r *Recorder) Clear(o client.Object, topics ...string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, topic := range topics {
		delete(r.emitted[objectOf(o)], topic)
	}
	if len(topics) == 0 {
		delete(r.emitted, objectOf(o))
	}
}

// prune forgets, once an hour, what would be emitted again anyway.
func (r *Recorder) prune(now time.Time) {
	if now.Sub(r.pruned) < repeatUnchanged {
		return
	}
	r.pruned = now
	for o, topics := range r.emitted {
		maps.DeleteFunc(topics, func(_ string, e emission) bool { return now.Sub(e.at) >= repeatUnchanged })
		if len(topics) == 0 {
			delete(r.emitted, o)
		}
	}
}

// Clip returns a text of at most that many bytes, with a mark if there was more.
func Clip(text string, size int) string {
	const mark = " ..."
	if len(text) <= size {
		return text
	}
	return strings.ToValidUTF8(text[:size-len(mark)], "") + mark
}
