// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/cli/kubectl/ui"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
)

// rows makes a row of each object for which row has cells.
func rows[T any](objects []T, row func(T) ui.Row) (all []ui.Row) {
	for _, object := range objects {
		if r := row(object); r.Cells != nil {
			all = append(all, r)
		}
	}
	return all
}

// podsView shows the pods that run in VMs, those of one node if it is given.
func (b *board) podsView(namespace, node string) *ui.View {
	pods, peerPods := b.pods(namespace), b.peerPods(namespace)
	return &ui.View{
		Name: "pods", Of: node, Sources: []ui.Source{pods, peerPods},
		Columns: []string{"NAMESPACE", "POD", "STATUS", "NODE", "VM", "TYPE", "PHASE", "AGE", "ERROR"},
		Spare:   []string{"TYPE", "VM", "NODE", "NAMESPACE"},
		Rows: func() []ui.Row {
			own := newestClaims(peerPods.all())
			return rows(pods.all(), func(p *pod) ui.Row {
				m := &p.Metadata
				pp := cmp.Or(own[string(m.UID)], own[m.Namespace+"/"+m.Name])
				if node != "" && p.Spec.NodeName != node || pp == nil && p.Spec.RuntimeClassName != RuntimeClass {
					return ui.Row{}
				}
				status, bad := p.state()
				instance, size, phase, failure := vmCells(pp)
				return ui.Row{
					Key: m.Namespace + "/" + m.Name, Text: failure, Bad: bad || failure != "",
					Cells:    []string{m.Namespace, m.Name, status, dash(p.Spec.NodeName), instance, size, phase, b.a.age(m.CreationTimestamp.Time)},
					Open:     b.podPage(m.Namespace, m.Name, pods, peerPods, true),
					Describe: b.podPage(m.Namespace, m.Name, pods, peerPods, false),
					YAML:     b.yaml("pods", core(m.Namespace, "pods"), m.Name),
				}
			})
		},
	}
}

// state returns what kubectl prints as the STATUS of a pod, and whether something is wrong.
func (p *pod) state() (status string, bad bool) {
	status = cmp.Or(p.Status.Reason, p.Status.Phase)
	running := false
	for _, c := range slices.Backward(p.Status.ContainerStatuses) {
		status = cmp.Or(stateOf(c.State), status)
		running = running || c.State.Running != nil
	}
	if running && status == "Completed" {
		status = "Running"
	}
	for i, c := range p.Status.InitContainerStatuses {
		sidecar := slices.ContainsFunc(p.Spec.InitContainers, func(own initContainer) bool {
			return own.Name == c.Name && own.RestartPolicy == corev1.ContainerRestartPolicyAlways
		})
		now := stateOf(c.State)
		if now == "Completed" || sidecar && c.Started != nil && *c.Started {
			continue
		}
		if now == "" || now == "PodInitializing" {
			now = fmt.Sprintf("%d/%d", i, len(p.Status.InitContainerStatuses))
		}
		status = "Init:" + now
		break
	}
	if p.Metadata.DeletionTimestamp != nil {
		return "Terminating", false
	}
	bad = p.Status.Phase == "Failed" || slices.ContainsFunc([]string{"Err", "BackOff"}, func(part string) bool { return strings.Contains(status, part) })
	return status, bad
}

// stateOf returns why a container waits or has ended, or nothing.
func stateOf(s corev1.ContainerState) string {
	switch w, t := s.Waiting, s.Terminated; {
	case w != nil:
		return w.Reason
	case t != nil && t.Reason == "" && t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	case t != nil:
		return cmp.Or(t.Reason, fmt.Sprintf("ExitCode:%d", t.ExitCode))
	}
	return ""
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

// vmCells returns what tables have of a VM, or of none.
func vmCells(pp *v1alpha1.PeerPod) (instance, size, phase, failure string) {
	if pp == nil {
		return "-", "-", "-", ""
	}
	if pp.Status.Instance != nil {
		size = pp.Status.Instance.Type
	}
	if e := pp.Status.LastError; e != nil {
		failure = prefixed(e.Class) + e.Message
	}
	return dash(pp.Spec.InstanceID), dash(size), string(claims.PhaseOf(pp)), failure
}

func (b *board) nodesView(namespace string) *ui.View {
	nodes, peerPods, adaptors := b.nodes(), b.peerPods(namespace), b.adaptors()
	return &ui.View{
		Name: "nodes", Sources: []ui.Source{nodes, peerPods, adaptors},
		Columns: []string{"NODE", "VMS", "CAPACITY", "PENDING", "CONNECTING", "READY", "FAILED", "DELETING", "ADAPTOR", "WHY"},
		Spare:   []string{"DELETING", "PENDING", "CONNECTING"},
		Rows: func() []ui.Row {
			at := map[string]*pod{}
			for _, p := range adaptors.all() {
				at[p.Spec.NodeName] = p
			}
			return rows(usageOf(nodes.all(), peerPods.all()), func(u *NodeUsage) ui.Row {
				state, why := "-", ""
				if adaptor := at[u.Node]; adaptor != nil && adaptor.ready() {
					state = "ready"
				} else if adaptor != nil {
					state, why = "not ready", adaptor.failure("").Detail
				}
				row := ui.Row{Key: u.Node, Cells: append(u.cells(), state), Text: why, Bad: u.Gone || why != ""}
				if u.Node != "" { // else PeerPods that have no node yet
					row.Open = func() *ui.View { return b.podsView(namespace, u.Node) }
					row.Describe, row.YAML = b.conditions("Node", core("", "nodes"), u.Node), b.yaml("nodes", core("", "nodes"), u.Node)
				}
				return row
			})
		},
	}
}

// vmsView shows PeerPods, those of one pool if it is given.
func (b *board) vmsView(namespace, pool string) *ui.View {
	peerPods := b.peerPods(namespace)
	return &ui.View{
		Name: "vms", Of: pool, Sources: []ui.Source{peerPods},
		Columns: []string{"NAMESPACE", "PEERPOD", "POD", "POOL", "PROVIDER", "VM", "TYPE", "NODE", "PHASE", "AGE", "ERROR"},
		Spare:   []string{"PROVIDER", "TYPE", "NODE", "POD", "NAMESPACE"},
		Rows: func() []ui.Row {
			return rows(peerPods.all(), func(pp *v1alpha1.PeerPod) ui.Row {
				in, name := "", claims.PodName(pp)
				if pp.Spec.Pool != nil {
					in = pp.Spec.Pool.Name
				}
				if pool != "" && pool != in {
					return ui.Row{}
				}
				instance, size, phase, failure := vmCells(pp)
				row := ui.Row{
					Key: pp.Namespace + "/" + pp.Name, Text: failure, Bad: failure != "",
					Cells: []string{pp.Namespace, pp.Name, dash(name), dash(in), dash(pp.Spec.CloudProvider), instance, size, dash(pp.Spec.NodeName), phase, b.a.age(pp.CreationTimestamp.Time)},
					Open:  b.vmPage(pp.Namespace, pp.Name, peerPods), Describe: b.vmPage(pp.Namespace, pp.Name, peerPods),
					YAML: b.yaml("PeerPods", api(peerPodGroup, pp.Namespace, v1alpha1.Resource), pp.Name),
				}
				if name != "" {
					row.Open = func() *ui.View { return b.podPage(pp.Namespace, name, b.pods(pp.Namespace), peerPods, true)() }
				}
				return row
			})
		},
	}
}

func (b *board) poolsView(namespace string) *ui.View {
	pools, at := b.pools(), api(peerPodGroup, "", v1alpha1.PoolResource)
	return &ui.View{
		Name: "pools", Sources: []ui.Source{pools},
		Columns: []string{"POOL", "READY", "STARTING", "CLAIMED", "MIN", "MAX", "HITS", "LAST HIT", "TYPE", "AGE", "WHY"},
		Spare:   []string{"LAST HIT", "MAX", "AGE", "TYPE"},
		Rows: func() []ui.Row {
			return rows(pools.all(), func(p *v1alpha1.PodVMPool) ui.Row {
				s, last, why := &p.Status, "-", ""
				if s.LastHit != nil {
					last = b.a.age(s.LastHit.Time)
				}
				if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
					why = prefixed(c.Reason) + c.Message
				}
				return ui.Row{
					Key: p.Name, Text: why, Bad: why != "",
					Cells: []string{p.Name, fmt.Sprint(s.Ready), fmt.Sprint(s.Starting), fmt.Sprint(s.Claimed), fmt.Sprint(p.Spec.MinReady),
						fmt.Sprint(p.Spec.Most()), fmt.Sprint(s.Hits), last, dash(p.Spec.InstanceType), b.a.age(p.CreationTimestamp.Time)},
					Open:     func() *ui.View { return b.vmsView(namespace, p.Name) },
					Describe: b.conditions("PodVMPool", at, p.Name), YAML: b.yaml("PodVMPools", at, p.Name),
				}
			})
		},
	}
}

// eventsView shows Events, the newest first.
func (b *board) eventsView(namespace string) *ui.View {
	events := source(b, "Events", core(namespace, "events"), nil, eventMeta)
	return &ui.View{
		Name: "events", Sources: []ui.Source{events},
		Columns: []string{"AGE", "TYPE", "NAMESPACE", "OBJECT", "REASON", "MESSAGE"},
		Spare:   []string{"NAMESPACE", "TYPE", "REASON"},
		Rows: func() []ui.Row {
			all := events.all()
			slices.SortStableFunc(all, func(x, y *corev1.Event) int { return lastSeen(y).Compare(lastSeen(x)) })
			return rows(all, func(e *corev1.Event) ui.Row {
				return ui.Row{
					Key: e.Namespace + "/" + e.Name, Text: e.Message, Bad: e.Type == corev1.EventTypeWarning,
					Cells: []string{b.a.age(lastSeen(e)), e.Type, e.Namespace, e.InvolvedObject.Kind + "/" + e.InvolvedObject.Name, e.Reason},
					Open:  b.eventPage(e), Describe: b.eventPage(e), YAML: b.yaml("Events", core(e.Namespace, "events"), e.Name),
				}
			})
		},
	}
}
