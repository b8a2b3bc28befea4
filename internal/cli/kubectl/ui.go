// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/cli/kubectl/ui"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/internal/timeline"
)

func (a *App) uiCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ui", Short: "Look around in the cluster, in a terminal", Args: cobra.NoArgs,
		Long: `Show pods in VMs, nodes, VMs, pools and Events in the terminal, as they change, with
the keys of k9s: Enter goes deeper, from a node to its pods and from a pod to its VM,
the steps of its start and its Events; Esc goes back, / filters, : opens another view
(:pods, :nodes, :vms, :pools, :events), d describes, y shows YAML, ? says the rest.
It changes nothing. Colours are left out if NO_COLOR is set.`,
		Example: "kubectl outrigger ui\nkubectl outrigger ui -n shop",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, isIn := a.Stdin.(*os.File)
			out, isOut := a.Stdout.(*os.File)
			if !isIn || !isOut || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
				return errors.New("ui needs a terminal: without one use `kubectl outrigger status`, also with -o json, or kubectl get peerpods -o json")
			}
			c, _, err := a.connect()
			if err != nil {
				return err
			}
			return ui.Run(cmd.Context(), in, out, ui.Options{
				Title: c.config.Host, Namespace: a.namespace, Views: viewNames, Open: newBoard(a, c).open, NoColor: a.Getenv("NO_COLOR") != "",
			})
		},
	}
}

// viewNames are the commands of the UI.
var viewNames = []string{"pods", "nodes", "vms", "pools", "events"}

// board makes views of the cluster. What two views are made of is followed once.
type board struct {
	a       *App
	c       *cluster
	sources map[string]ui.Source
}

func newBoard(a *App, c *cluster) *board { return &board{a, c, map[string]ui.Source{}} }

// open returns the view of a command, with the short names that kubectl has, or nil. An empty namespace is all.
func (b *board) open(name, namespace string) *ui.View {
	if namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		return nil
	}
	switch name {
	case "pods", "pod", "po":
		return b.podsView(namespace, "")
	case "nodes", "node", "no":
		return b.nodesView(namespace)
	case "vms", "vm", "peerpods", "peerpod", "pp":
		return b.vmsView(namespace, "")
	case "pools", "pool", "podvmpools", "pvp":
		return b.poolsView(namespace)
	case "events", "event", "ev":
		return b.eventsView(namespace)
	}
	return nil
}

// source returns the collection at a path, one for all views.
func source[T any](b *board, kind, at string, params map[string]string, meta func(*T) *metav1.ObjectMeta) *collection[T] {
	key := at + " " + params["labelSelector"]
	if b.sources[key] == nil {
		b.sources[key] = &collection[T]{c: b.c, kind: kind, at: at, params: params, meta: meta}
	}
	return b.sources[key].(*collection[T])
}

func (b *board) pods(namespace string) *collection[pod] {
	return source(b, "pods", core(namespace, "pods"), nil, podMeta)
}

func podMeta(p *pod) *metav1.ObjectMeta { return &p.Metadata }

// adaptors are the daemon's pods.
func (b *board) adaptors() *collection[pod] {
	return source(b, "pods of the adaptor", core(b.a.system, "pods"), map[string]string{"labelSelector": "app.kubernetes.io/name=cloud-api-adaptor"}, podMeta)
}

func (b *board) nodes() *collection[node] {
	return source(b, "nodes", core("", "nodes"), nil, func(n *node) *metav1.ObjectMeta { return &n.Metadata })
}

func (b *board) peerPods(namespace string) *collection[v1alpha1.PeerPod] {
	return source(b, "PeerPods", api(peerPodGroup, namespace, v1alpha1.Resource), nil, func(pp *v1alpha1.PeerPod) *metav1.ObjectMeta { return &pp.ObjectMeta })
}

func (b *board) pools() *collection[v1alpha1.PodVMPool] {
	return source(b, "PodVMPools", api(peerPodGroup, "", v1alpha1.PoolResource), nil, func(p *v1alpha1.PodVMPool) *metav1.ObjectMeta { return &p.ObjectMeta })
}

func eventMeta(e *corev1.Event) *metav1.ObjectMeta { return &e.ObjectMeta }

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
	return func() *ui.View {
		return &ui.View{Name: "event", Of: e.Name, Page: func(int) string {
			return fmt.Sprintf("%s %s of %s %s/%s, %d times, last %s ago, from %s\n\n%s\n", e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Namespace,
				e.InvolvedObject.Name, max(e.Count, 1), b.a.age(lastSeen(e)), dash(e.Source.Component+e.ReportingController), redact.Foreign(e.Message))
		}}
	}
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
			return redact.Text(string(new(redactor).out(out)))
		}}
	}
}
