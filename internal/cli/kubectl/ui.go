// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/cli/kubectl/ui"
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
