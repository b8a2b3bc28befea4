// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
)

// recording is a Recorder with a clock that stands still, and what it emitted.
type recording struct {
	*Recorder
	now     time.Time
	emitted *events.FakeRecorder
}

func newRecording() *recording {
	r := &recording{now: time.Unix(1e9, 0), emitted: events.NewFakeRecorder(100)}
	r.Recorder = NewRecorder(r.emitted, func() time.Time { return r.now })
	return r
}

// want checks how many Events there are since the last time.
func (r *recording) want(t *testing.T, what string, n int) {
	t.Helper()
	if got := len(r.emitted.Events); got != n {
		t.Errorf("%s: %d Events, want %d", what, got, n)
	}
	for len(r.emitted.Events) > 0 {
		<-r.emitted.Events
	}
}

func pod(uid types.UID, generation int64) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: uid, Generation: generation}}
}

func TestWarningsAreNotRepeated(t *testing.T) {
	r := newRecording()
	p := pod("1", 1)
	for _, step := range []struct {
		what    string
		after   time.Duration
		object  *corev1.Pod
		reason  string
		message string
		want    int
	}{
		{"the first", 0, p, "Full", "a", 1},
		{"the same", time.Minute, p, "Full", "a", 0},
		{"another message soon", time.Minute, p, "Full", "b", 0},
		{"another reason", 0, p, "Denied", "b", 1},
		{"another message later", 10 * time.Minute, p, "Full", "b", 1},
		{"another message of a changed object", 0, pod("1", 2), "Full", "c", 1},
		{"the same of a changed object", 0, pod("1", 3), "Full", "c", 0},
		{"the same after almost an hour", time.Hour - time.Second, pod("1", 3), "Full", "c", 0},
		{"the same after an hour", time.Second, pod("1", 3), "Full", "c", 1},
		{"another object of that name", 0, pod("2", 3), "Full", "c", 1},
	} {
		r.now = r.now.Add(step.after)
		r.Warn(step.object, step.reason, "Do", step.message)
		r.want(t, step.what, step.want)
	}
}

func TestClearedWarningsAreNew(t *testing.T) {
	r := newRecording()
	warn := func(what string, want int, reasons ...string) {
		t.Helper()
		for _, reason := range reasons {
			r.Warn(pod("1", 1), reason, "Do", "a")
		}
		r.want(t, what, want)
	}
	warn("two", 2, "A", "B")
	r.Clear(pod("1", 1), "A")
	warn("one is cleared", 1, "A", "B")
	r.Clear(pod("1", 1))
	warn("all are cleared", 2, "A", "B")
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "q"}}
	r.Clear(other)
	r.Clear(other, "A")
	warn("another's are cleared", 0, "A", "B")
}

func TestStatesThatChange(t *testing.T) {
	r := newRecording()
	for i, state := range []string{"a", "b", "a", "a"} {
		if got, want := r.Changed(pod("1", 1), "topic", state), i < 3; got != want {
			t.Errorf("call %d: %v", i, got)
		}
	}
}

// TestKindsAreToldApart, also where one Go type has all kinds.
func TestKindsAreToldApart(t *testing.T) {
	r := newRecording()
	for _, kind := range []string{"Deployment", "ConfigMap", "Deployment"} {
		u := &unstructured.Unstructured{}
		u.SetKind(kind)
		u.SetName("p")
		u.SetNamespace("n")
		r.Warn(u, "A", "Do", "a")
	}
	r.Warn(pod("", 0), "A", "Do", "a")
	r.want(t, "three kinds", 3)
}

func TestMemoryOfARecorderIsBounded(t *testing.T) {
	r := newRecording()
	for i := range 1000 {
		r.now = r.now.Add(time.Minute)
		o := pod("", 0)
		o.Name = strings.Repeat("x", i+1)
		r.Changed(o, "topic", "")
	}
	if len(r.Recorder.emitted) > 120 {
		t.Errorf("%d objects after %v", len(r.Recorder.emitted), 1000*time.Minute)
	}
}

func TestNotesFit(t *testing.T) {
	r := newRecording()
	r.Emit(pod("", 0), nil, corev1.EventTypeNormal, "A", "Do", strings.Repeat("ü", 1024)+"%s")
	got := <-r.emitted.Events
	if note := strings.TrimPrefix(got, "Normal A "); len(note) > 1024 || !utf8.ValidString(note) || !strings.HasSuffix(note, " ...") {
		t.Errorf("%d bytes: %q", len(note), note)
	}
	if got := Clip("100%", 4); got != "100%" {
		t.Error(got)
	}
}

func TestNoRecorder(*testing.T) {
	var r *Recorder
	r.Emit(pod("", 0), nil, "Normal", "A", "Do", "a")
	r.Warn(pod("", 0), "A", "Do", "a")
	r.Changed(pod("", 0), "A", "a")
	r.Clear(pod("", 0))
}
