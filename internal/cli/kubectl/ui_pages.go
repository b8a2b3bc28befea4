// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/cli/kubectl/ui"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/internal/timeline"
)

// find returns an object, or nil.
func (x *collection[T]) find(namespace, name string) *T {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.items[namespace+"/"+name]
}

// eventsAbout returns the Events of one object; those of objects without a namespace are in the default one.
func (b *board) eventsAbout(kind, namespace, name string) *collection[corev1.Event] {
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &collection[corev1.Event]{c: b.c, kind: "Events", at: core(namespace, "events"), params: aboutObject(kind, name), meta: eventMeta}
}

// podPage is what describe shows of a pod, and with steps also those of its start.
func (b *board) podPage(namespace, name string, pods *collection[pod], peerPods *collection[v1alpha1.PeerPod], steps bool) func() *ui.View {
	return func() *ui.View {
		events := b.eventsAbout("Pod", namespace, name)
		return &ui.View{Name: "pod", Of: namespace + "/" + name, Sources: []ui.Source{pods, peerPods, events}, Page: func(width int) string {
			if !wasRead(pods) || !wasRead(peerPods) {
				return "" // a pod that nobody has looked for is not gone
			}
			d, own := claimed(pods.find(namespace, name), namespace, name, peerPods.all())
			if d == nil {
				return ""
			}
			b.a.complete(d, own, events.all())
			if !steps {
				own = nil
			}
			return d.page(width, own...)
		}}
	}
}

func wasRead(s ui.Source) bool {
	read, _ := s.State()
	return read
}

// page prints a description, with the steps of the newest start between tree and Events.
func (d *Description) page(width int, starts ...*v1alpha1.PeerPod) string {
	var out strings.Builder
	d.printTree(&out)
	if len(starts) > 0 && len(starts[0].Status.Steps) > 0 {
		out.WriteString("\n")
		timeline.Write(&out, timeline.Forms[0], "Start", ofSteps(starts[0].Status.Steps), width) // into memory: it does not fail
	}
	d.printEvents(&out)
	return out.String()
}

func (b *board) vmPage(namespace, name string, peerPods *collection[v1alpha1.PeerPod]) func() *ui.View {
	return func() *ui.View {
		events := b.eventsAbout("PeerPod", namespace, name)
		return &ui.View{Name: "PeerPod", Of: name, Sources: []ui.Source{peerPods, events}, Page: func(width int) string {
			pp := peerPods.find(namespace, name)
			if pp == nil {
				return ""
			}
			d := &Description{Problems: []Problem{}, Events: b.a.newest(events.all(), string(pp.UID))}
			d.Tree = b.a.ofPeerPod(d, pp)
			return d.page(width, pp)
		}}
	}
}

// one is the collection of one object.
func one[T any](b *board, kind, at, name string, meta func(*T) *metav1.ObjectMeta) *collection[T] {
	return &collection[T]{c: b.c, kind: kind, at: at, params: map[string]string{"fieldSelector": "metadata.name=" + name}, meta: meta}
}

// conditions describes a cluster's node or pool by its conditions and Events.
func (b *board) conditions(kind, at, name string) func() *ui.View {
	return func() *ui.View {
		// Pools have no status that a node has, except for the conditions.
		of, events := one(b, kind, at, name, func(n *node) *metav1.ObjectMeta { return &n.Metadata }), b.eventsAbout(kind, "", name)
		return &ui.View{Name: kind, Of: name, Sources: []ui.Source{of, events}, Page: func(width int) string {
			n := of.find("", name)
			if n == nil {
				return ""
			}
			d := &Description{Tree: &Part{Kind: kind, Name: name, State: "not ready"}, Events: b.a.newest(events.all(), "")}
			if meta.IsStatusConditionTrue(n.Status.Conditions, v1alpha1.ConditionReady) {
				d.Tree.State = "Ready"
			}
			for _, resource := range slices.Sorted(maps.Keys(n.Status.Capacity)) {
				d.Tree.Detail = append(d.Tree.Detail, resource+" "+n.Status.Capacity[resource])
			}
			for _, c := range n.Status.Conditions {
				d.Tree.Parts = append(d.Tree.Parts, &Part{Kind: c.Type, State: string(c.Status), Detail: compact(c.Reason, firstLine(c.Message))})
			}
			return d.page(width)
		}}
	}
}

func (b *board) eventPage(e *corev1.Event) func() *ui.View {
	text := fmt.Sprintf("%s %s of %s %s/%s, %d times, last %s ago, from %s\n\n%s\n", e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Namespace,
		e.InvolvedObject.Name, max(e.Count, 1), b.a.age(lastSeen(e)), dash(e.Source.Component+e.ReportingController), redact.Foreign(e.Message))
	return func() *ui.View { return &ui.View{Name: "event", Of: e.Name, Page: func(int) string { return text }} }
}

// yaml is an object without what may be secret, as support-bundle has it.
func (b *board) yaml(kind, at, name string) func() *ui.View {
	return func() *ui.View {
		object := one(b, kind, at, name, func(o *map[string]any) *metav1.ObjectMeta {
			return &metav1.ObjectMeta{Name: name, ResourceVersion: text(*o, "metadata", "resourceVersion")}
		})
		return &ui.View{Name: "YAML", Of: name, Sources: []ui.Source{object}, Page: func(int) string {
			o := object.find("", name)
			if o == nil {
				return ""
			}
			shown := runtime.DeepCopyJSON(*o)
			harmless(shown)
			out, _ := yaml.Marshal(shown) // what was JSON is YAML
			return string(new(redactor).out(out))
		}}
	}
}
