// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
			if !steps || len(own) == 0 {
				return d.page(nil, width)
			}
			return d.page(own[0], width)
		}}
	}
}

func wasRead(s ui.Source) bool {
	read, _ := s.State()
	return read
}

// page prints a description, with the steps of a start between tree and Events.
func (d *Description) page(started *v1alpha1.PeerPod, width int) string {
	var out strings.Builder
	d.printTree(&out)
	if started != nil && len(started.Status.Steps) > 0 {
		out.WriteString("\n")
		timeline.Write(&out, timeline.Forms[0], "Start", ofSteps(started.Status.Steps), width) // into memory: it does not fail
	}
	d.printEvents(&out)
	return out.String()
}

// objectPage describes an object other than a pod; part returns nil if it is gone.
func (b *board) objectPage(kind, namespace, name string, from ui.Source, part func(d *Description) (*Part, *v1alpha1.PeerPod)) func() *ui.View {
	return func() *ui.View {
		events := b.eventsAbout(kind, namespace, name)
		return &ui.View{Name: kind, Of: name, Sources: []ui.Source{from, events}, Page: func(width int) string {
			d := &Description{}
			tree, started := part(d)
			if d.Tree = tree; tree == nil {
				return ""
			}
			d.Events = b.a.newest(events.all(), "")
			return d.page(started, width)
		}}
	}
}

func (b *board) vmPage(namespace, name string, peerPods *collection[v1alpha1.PeerPod]) func() *ui.View {
	return b.objectPage("PeerPod", namespace, name, peerPods, func(d *Description) (*Part, *v1alpha1.PeerPod) {
		pp := peerPods.find(namespace, name)
		if pp == nil {
			return nil, nil
		}
		return b.a.ofPeerPod(d, pp), pp
	})
}

func (b *board) nodePage(name string) func() *ui.View {
	nodes := b.nodes()
	return b.objectPage("Node", "", name, nodes, func(*Description) (*Part, *v1alpha1.PeerPod) {
		n := nodes.find("", name)
		if n == nil {
			return nil, nil
		}
		part := conditionsPart("Node", name, n.Status.Conditions)
		for _, resource := range slices.Sorted(maps.Keys(n.Status.Capacity)) {
			part.Detail = append(part.Detail, resource+" "+n.Status.Capacity[resource])
		}
		return part, nil
	})
}

func (b *board) poolPage(name string) func() *ui.View {
	pools := b.pools()
	return b.objectPage("PodVMPool", "", name, pools, func(d *Description) (*Part, *v1alpha1.PeerPod) {
		p := pools.find("", name)
		if p == nil {
			return nil, nil
		}
		if e := p.Status.LastError; e != nil {
			d.problem("PodVMPool "+name, e.Class, e.Message, e.Hint)
		}
		part := conditionsPart("PodVMPool", name, p.Status.Conditions)
		part.Detail = compact(prefix("provider ", p.Spec.CloudProvider), prefix("type ", p.Spec.InstanceType), prefix("image ", p.Spec.Image))
		return part, nil
	})
}

// conditionsPart is an object with its conditions; that of Ready is its state.
func conditionsPart(kind, name string, conditions []metav1.Condition) *Part {
	part := &Part{Kind: kind, Name: name}
	for _, c := range conditions {
		if c.Type == v1alpha1.ConditionReady {
			part.State = map[bool]string{true: "Ready", false: "not ready"}[c.Status == metav1.ConditionTrue]
		}
		part.Parts = append(part.Parts, &Part{Kind: c.Type, State: string(c.Status), Detail: compact(c.Reason, firstLine(c.Message))})
	}
	return part
}

func (b *board) eventPage(e *corev1.Event) func() *ui.View {
	text := fmt.Sprintf("%s %s of %s %s/%s, %d times, last %s ago, from %s\n\n%s\n", e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Namespace,
		e.InvolvedObject.Name, max(e.Count, 1), b.a.age(lastSeen(e)), dash(e.Source.Component+e.ReportingController), redact.Foreign(e.Message))
	return func() *ui.View { return &ui.View{Name: "event", Of: e.Name, Page: func(int) string { return text }} }
}

// yaml is an object without what may be secret, as support-bundle has it.
func (b *board) yaml(kind, at, name string) func() *ui.View {
	return func() *ui.View {
		object := &collection[map[string]any]{c: b.c, kind: kind, at: at, params: map[string]string{"fieldSelector": "metadata.name=" + name},
			meta: func(o *map[string]any) *metav1.ObjectMeta {
				return &metav1.ObjectMeta{Namespace: text(*o, "metadata", "namespace"), Name: name, ResourceVersion: text(*o, "metadata", "resourceVersion")}
			}}
		return &ui.View{Name: "YAML", Of: name, Sources: []ui.Source{object}, Page: func(int) string {
			var out []byte
			for _, o := range object.all() {
				shown := runtime.DeepCopyJSON(*o)
				harmless(shown)
				out, _ = yaml.Marshal(shown) // what was JSON is YAML
			}
			return string(new(redactor).out(out))
		}}
	}
}
