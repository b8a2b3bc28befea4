// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
)

func (a *App) topCommand() *cobra.Command {
	return a.shows(&cobra.Command{
		Use: "top", Short: "Show the pod VMs of each node and how many it may have", Args: cobra.NoArgs,
		Long: `Show the pod VMs of each node, by phase, and how many it may have (its capacity of
kata.peerpods.io/vm, which PEERPODS_LIMIT_PER_NODE sets). With -n only the VMs of that namespace are counted.`,
	}, func(ctx context.Context, c *cluster, _ string, _ []string) (printer, error) {
		return c.usage(ctx, a.namespace)
	})
}

// NodeUsage is what one node has of pod VMs.
type NodeUsage struct {
	Node string `json:"node"`
	// Capacity is nil when the node advertises none: no adaptor is there, or
	// it has no limit.
	Capacity *int `json:"capacity"`
	PeerPods int  `json:"peerPods"`
	// Phases counts the PeerPods by phase.
	Phases map[v1alpha1.Phase]int `json:"phases"`
	// Gone says that the cluster has no such node any more.
	Gone bool `json:"gone,omitempty"`
}

// Usage is that of all nodes with an adaptor or with PeerPods, by name.
type Usage []*NodeUsage

func (c *cluster) usage(ctx context.Context, namespace string) (Usage, error) {
	nodes, err := list[node](ctx, c, core("", "nodes"), nil)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	peerPods, err := c.peerPods(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return usageOf(pointers(nodes), pointers(peerPods)), nil
}

func usageOf(nodes []*node, peerPods []*v1alpha1.PeerPod) Usage {
	byNode, known := map[string]*NodeUsage{}, map[string]bool{}
	of := func(name string) *NodeUsage {
		if byNode[name] == nil {
			byNode[name] = &NodeUsage{Node: name, Phases: map[v1alpha1.Phase]int{}}
		}
		return byNode[name]
	}
	for _, n := range nodes {
		known[n.Metadata.Name] = true
		if capacity, err := strconv.Atoi(n.Status.Capacity[VMResource]); err == nil {
			of(n.Metadata.Name).Capacity = &capacity
		}
	}
	for _, pp := range peerPods {
		if pp.Spec.Pool != nil { // its pod has one, too; one that waits is on no node
			continue
		}
		u := of(pp.Spec.NodeName)
		u.PeerPods++
		u.Phases[claims.PhaseOf(pp)]++
		u.Gone = !known[u.Node]
	}
	usage := Usage{}
	for _, name := range slices.Sorted(maps.Keys(byNode)) {
		usage = append(usage, byNode[name])
	}
	return usage
}

// phases in the order of a PeerPod's life.
var phases = []v1alpha1.Phase{v1alpha1.PhasePending, v1alpha1.PhaseConnecting, v1alpha1.PhaseReady, v1alpha1.PhaseFailed, v1alpha1.PhaseDeleting}

func (u Usage) print(w io.Writer) {
	if len(u) == 0 {
		fmt.Fprintln(w, "No node has pod VMs or advertises a place for them; see `kubectl outrigger check`.")
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tVMS\tCAPACITY\tPENDING\tCONNECTING\tREADY\tFAILED\tDELETING")
	for _, n := range u {
		fmt.Fprintln(table, strings.Join(n.cells(), "\t"))
	}
	table.Flush()
}

// cells are the columns of a node, from its name to the number that is being removed.
func (n *NodeUsage) cells() []string {
	name, capacity := cmp.Or(n.Node, "(unknown)"), "-"
	if n.Gone && n.Node != "" {
		name += " (gone)"
	}
	if n.Capacity != nil {
		capacity = strconv.Itoa(*n.Capacity)
	}
	cells := []string{name, strconv.Itoa(n.PeerPods), capacity}
	for _, phase := range phases {
		cells = append(cells, strconv.Itoa(n.Phases[phase]))
	}
	return cells
}
