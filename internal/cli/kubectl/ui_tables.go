// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/cli/kubectl/ui"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
)

// podsView shows the pods that run in VMs, those of one node if it is given.
func (b *board) podsView(namespace, node string) *ui.View {
	pods, peerPods := b.pods(namespace), b.peerPods(namespace)
	return &ui.View{
		Name: "pods", Of: node, Sources: []ui.Source{pods, peerPods},
		Columns: []string{"NAMESPACE", "POD", "STATUS", "NODE", "VM", "TYPE", "PHASE", "AGE", "ERROR"},
		Spare:   []string{"TYPE", "VM", "NODE", "NAMESPACE"},
		Rows: func() (rows []ui.Row) {
			own := newestClaims(peerPods.all())
			for _, p := range pods.all() {
				m := &p.Metadata
				pp := cmp.Or(own[string(m.UID)], own[m.Namespace+"/"+m.Name])
				if node != "" && p.Spec.NodeName != node || pp == nil && p.Spec.RuntimeClassName != RuntimeClass {
					continue
				}
				rows = append(rows, b.podRow(p, pp, pods, peerPods))
			}
			return rows
		},
	}
}

// newestClaims returns the newest PeerPod of each pod, by its UID, or by namespace/name if the UID is not known.
func newestClaims(all []*v1alpha1.PeerPod) map[string]*v1alpha1.PeerPod {
	own := map[string]*v1alpha1.PeerPod{}
	for _, pp := range all {
		key := cmp.Or(string(claims.PodUID(pp)), pp.Namespace+"/"+claims.PodName(pp))
		if last := own[key]; last == nil || last.CreationTimestamp.Before(&pp.CreationTimestamp) {
			own[key] = pp
		}
	}
	return own
}

func (b *board) podRow(p *pod, pp *v1alpha1.PeerPod, pods *collection[pod], peerPods *collection[v1alpha1.PeerPod]) ui.Row {
	m, status := &p.Metadata, p.Status.Phase
	if m.DeletionTimestamp != nil {
		status = "Terminating"
	}
	vm := vmCells(pp)
	return ui.Row{
		Key: m.Namespace + "/" + m.Name, Text: failureOf(pp), Bad: status == "Failed" || vm[2] == string(v1alpha1.PhaseFailed),
		Cells:    []string{m.Namespace, m.Name, status, dash(p.Spec.NodeName), vm[0], vm[1], vm[2], b.a.age(m.CreationTimestamp.Time)},
		Open:     b.podPage(m.Namespace, m.Name, pods, peerPods, true),
		Describe: b.podPage(m.Namespace, m.Name, pods, peerPods, false),
		YAML:     b.yaml("pods", core(m.Namespace, "pods"), m.Name),
	}
}

// vmCells are instance, type and phase of a VM, or of none.
func vmCells(pp *v1alpha1.PeerPod) [3]string {
	if pp == nil {
		return [3]string{"-", "-", "-"}
	}
	instanceType := ""
	if pp.Status.Instance != nil {
		instanceType = pp.Status.Instance.Type
	}
	return [3]string{dash(pp.Spec.InstanceID), dash(instanceType), string(claims.PhaseOf(pp))}
}

func failureOf(pp *v1alpha1.PeerPod) string {
	if pp == nil || pp.Status.LastError == nil {
		return ""
	}
	return prefixed(pp.Status.LastError.Class) + pp.Status.LastError.Message
}

func (b *board) nodesView(namespace string) *ui.View {
	nodes, peerPods, adaptors := b.nodes(), b.peerPods(namespace), b.adaptors()
	return &ui.View{
		Name: "nodes", Sources: []ui.Source{nodes, peerPods, adaptors},
		Columns: []string{"NODE", "VMS", "CAPACITY", "PENDING", "CONNECTING", "READY", "FAILED", "DELETING", "ADAPTOR", "WHY"},
		Spare:   []string{"DELETING", "PENDING", "CONNECTING"},
		Rows: func() (rows []ui.Row) {
			at := map[string]*pod{}
			for _, p := range adaptors.all() {
				at[p.Spec.NodeName] = p
			}
			for _, u := range usageOf(nodes.all(), peerPods.all()) {
				rows = append(rows, b.nodeRow(u, at[u.Node], namespace))
			}
			return rows
		},
	}
}

func (b *board) nodeRow(u *NodeUsage, adaptor *pod, namespace string) ui.Row {
	state, why := "-", ""
	if adaptor != nil {
		if state = "ready"; !adaptor.ready() {
			state, why = "not ready", adaptor.failure("").Detail
		}
	}
	row := ui.Row{
		Key: u.Node, Cells: append(u.cells(), state), Text: why, Bad: u.Gone || state == "not ready",
		Open: func() *ui.View { return b.podsView(namespace, u.Node) },
	}
	if !u.Gone && u.Node != "" {
		row.Describe, row.YAML = b.nodePage(u.Node), b.yaml("nodes", core("", "nodes"), u.Node)
	}
	return row
}

// vmsView shows PeerPods, those of one pool if it is given.
func (b *board) vmsView(namespace, pool string) *ui.View {
	peerPods := b.peerPods(namespace)
	return &ui.View{
		Name: "vms", Of: pool, Sources: []ui.Source{peerPods},
		Columns: []string{"NAMESPACE", "PEERPOD", "POD", "POOL", "PROVIDER", "VM", "TYPE", "NODE", "PHASE", "AGE", "ERROR"},
		Spare:   []string{"PROVIDER", "TYPE", "NODE", "POD", "NAMESPACE"},
		Rows: func() (rows []ui.Row) {
			for _, pp := range peerPods.all() {
				in := ""
				if pp.Spec.Pool != nil {
					in = pp.Spec.Pool.Name
				}
				if pool == "" || pool == in {
					rows = append(rows, b.vmRow(pp, in, peerPods))
				}
			}
			return rows
		},
	}
}

func (b *board) vmRow(pp *v1alpha1.PeerPod, pool string, peerPods *collection[v1alpha1.PeerPod]) ui.Row {
	vm, name := vmCells(pp), claims.PodName(pp)
	row := ui.Row{
		Key: pp.Namespace + "/" + pp.Name, Text: failureOf(pp), Bad: vm[2] == string(v1alpha1.PhaseFailed),
		Cells: []string{pp.Namespace, pp.Name, dash(name), dash(pool), dash(pp.Spec.CloudProvider), vm[0], vm[1], dash(pp.Spec.NodeName), vm[2], b.a.age(pp.CreationTimestamp.Time)},
		Open:  b.vmPage(pp.Namespace, pp.Name, peerPods),
		YAML:  b.yaml("PeerPods", api(peerPodGroup, pp.Namespace, v1alpha1.Resource), pp.Name),
	}
	row.Describe = row.Open
	if name != "" {
		row.Open = b.podPage(pp.Namespace, name, b.pods(pp.Namespace), peerPods, true)
	}
	return row
}

func (b *board) poolsView(namespace string) *ui.View {
	pools := b.pools()
	return &ui.View{
		Name: "pools", Sources: []ui.Source{pools},
		Columns: []string{"POOL", "READY", "STARTING", "CLAIMED", "MIN", "MAX", "HITS", "LAST HIT", "TYPE", "AGE", "WHY"},
		Spare:   []string{"LAST HIT", "MAX", "AGE", "TYPE"},
		Rows: func() (rows []ui.Row) {
			for _, p := range pools.all() {
				rows = append(rows, b.poolRow(p, namespace))
			}
			return rows
		},
	}
}

func (b *board) poolRow(p *v1alpha1.PodVMPool, namespace string) ui.Row {
	s, last, why := &p.Status, "-", ""
	if s.LastHit != nil {
		last = b.a.age(s.LastHit.Time)
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
		why = prefixed(c.Reason) + c.Message
	}
	number := func(n int32) string { return strconv.Itoa(int(n)) }
	return ui.Row{
		Key: p.Name, Text: why, Bad: why != "",
		Cells: []string{p.Name, number(s.Ready), number(s.Starting), number(s.Claimed), number(p.Spec.MinReady), number(p.Spec.Most()),
			strconv.FormatInt(s.Hits, 10), last, dash(p.Spec.InstanceType), b.a.age(p.CreationTimestamp.Time)},
		Open:     func() *ui.View { return b.vmsView(namespace, p.Name) },
		Describe: b.poolPage(p.Name),
		YAML:     b.yaml("PodVMPools", api(peerPodGroup, "", v1alpha1.PoolResource), p.Name),
	}
}

// eventsView shows Events, the newest first.
func (b *board) eventsView(namespace string) *ui.View {
	events := b.events(namespace)
	return &ui.View{
		Name: "events", Sources: []ui.Source{events},
		Columns: []string{"AGE", "TYPE", "NAMESPACE", "OBJECT", "REASON", "MESSAGE"},
		Spare:   []string{"NAMESPACE", "TYPE", "REASON"},
		Rows: func() (rows []ui.Row) {
			all := events.all()
			slices.SortStableFunc(all, func(x, y *corev1.Event) int { return lastSeen(y).Compare(lastSeen(x)) })
			for _, e := range all {
				of := &e.InvolvedObject
				rows = append(rows, ui.Row{
					Key: e.Namespace + "/" + e.Name, Text: e.Message, Bad: e.Type == corev1.EventTypeWarning,
					Cells: []string{b.a.age(lastSeen(e)), e.Type, e.Namespace, of.Kind + "/" + of.Name, e.Reason},
					Open:  b.eventPage(e), Describe: b.eventPage(e),
					YAML: b.yaml("Events", core(e.Namespace, "events"), e.Name),
				})
			}
			return rows
		},
	}
}
