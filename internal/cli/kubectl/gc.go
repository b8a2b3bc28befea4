// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/provider"
)

func (a *App) gcCommand() *cobra.Command {
	var dry bool
	older := stuckAfter
	cmd := a.shows(&cobra.Command{
		Use: "gc --dry-run", Short: "Show what pods have left behind", Args: cobra.NoArgs,
		Long: `Show what pods have left behind: PeerPods whose removal hangs, whose pod or node
is gone, and, where the provider can be loaded on this machine, instances in the
cloud that no PeerPod claims and disks of volumes that no PersistentVolume names.
Nothing is removed. peerpod-ctrl removes PeerPods and instances, so what is shown
of them for long is a sign that it does not run or that the cloud refuses. Nothing
removes a disk by itself: its data may be all that is left.
Without -n all namespaces are looked at.`,
		PreRunE: func(*cobra.Command, []string) error {
			if !dry {
				return errors.New("gc removes nothing itself, peerpod-ctrl does: say --dry-run to see what is left")
			}
			return nil
		},
	}, func(ctx context.Context, c *cluster, _ string, _ []string) (printer, error) {
		return a.leftovers(ctx, c, older)
	})
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show; the one way there is")
	cmd.Flags().DurationVar(&older, "older-than", older, "leave out what is younger: it may be on its way")
	return cmd
}

// LeftPeerPod is a PeerPod that should be gone.
type LeftPeerPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Pod       string `json:"pod,omitempty"`
	Provider  string `json:"provider,omitempty"`
	Instance  string `json:"instance,omitempty"`
	// Since is when its removal began, or else when it was created.
	Since metav1.Time `json:"since"`
	Why   string      `json:"why"`
	age   string
}

// LeftInstance is an instance that no PeerPod claims.
type LeftInstance struct {
	Provider string    `json:"provider"`
	ID       string    `json:"id"`
	Name     string    `json:"name,omitempty"`
	Created  time.Time `json:"created"`
	Pod      string    `json:"pod,omitempty"`
	Node     string    `json:"node,omitempty"`
	age      string
}

// LeftDisk is a disk of a volume that no PersistentVolume names.
type LeftDisk struct {
	Provider string `json:"provider"`
	ID       string `json:"id"`
	// Volume is the name of the PersistentVolume for which it was made.
	Volume  string    `json:"volume"`
	Bytes   int64     `json:"bytes"`
	Created time.Time `json:"created"`
	// Instance is the one that has it, if any.
	Instance string `json:"instance,omitempty"`
	age      string
}

// Leftovers is what gc --dry-run shows.
type Leftovers struct {
	PeerPods  []LeftPeerPod  `json:"peerPods"`
	Instances []LeftInstance `json:"instances"`
	Disks     []LeftDisk     `json:"disks"`
	// Unseen says, by provider, why its instances could not be listed.
	Unseen map[string]string `json:"unseen,omitempty"`
}

func (a *App) leftovers(ctx context.Context, c *cluster, older time.Duration) (*Leftovers, error) {
	// The claims of all namespaces: an instance of another one is not left over.
	peerPods, err := c.peerPods(ctx, "")
	if err != nil {
		return nil, err
	}
	look := leftoverCheck{app: a, older: older}
	if err := look.load(ctx, c); err != nil {
		return nil, err
	}
	report := &Leftovers{PeerPods: []LeftPeerPod{}, Instances: []LeftInstance{}, Disks: []LeftDisk{}, Unseen: map[string]string{}}
	for i := range peerPods {
		if a.namespace != "" && peerPods[i].Namespace != a.namespace {
			continue
		}
		if left, ok := look.check(&peerPods[i]); ok {
			report.PeerPods = append(report.PeerPods, left)
		}
	}
	a.leftInstances(ctx, c, peerPods, older, report)
	return report, nil
}

// leftoverCheck knows which pods and nodes exist.
type leftoverCheck struct {
	app         *App
	older       time.Duration
	pods, nodes map[string]bool
}

func (l *leftoverCheck) load(ctx context.Context, c *cluster) error {
	pods, err := list[object](ctx, c, core(l.app.namespace, "pods"), nil)
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	nodes, err := list[object](ctx, c, core("", "nodes"), nil)
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	l.pods, l.nodes = map[string]bool{}, map[string]bool{}
	for _, p := range pods {
		l.pods[string(p.Metadata.UID)] = true
		l.pods[p.Metadata.Namespace+"/"+p.Metadata.Name] = true
	}
	for _, n := range nodes {
		l.nodes[n.Metadata.Name] = true
	}
	return nil
}

// check reports whether and why a PeerPod is left over.
func (l *leftoverCheck) check(pp *v1alpha1.PeerPod) (LeftPeerPod, bool) {
	since, why := pp.CreationTimestamp, ""
	switch {
	case pp.DeletionTimestamp != nil:
		since = *pp.DeletionTimestamp
		why = "its removal hangs" + waitReason(pp)
		if e := pp.Status.LastError; e != nil && e.Hint != "" {
			why += "; " + e.Hint
		}
	case pp.Spec.Pool != nil: // waits for a pod, or is removed by peerpod-ctrl when that is gone
	case !l.pods[cmp.Or(string(claims.PodUID(pp)), pp.Namespace+"/"+claims.PodName(pp))]:
		why = "its pod is gone and nobody has deleted it: is kube-controller-manager's garbage collector running?"
	case pp.Spec.NodeName != "" && !l.nodes[pp.Spec.NodeName]:
		why = "its node " + pp.Spec.NodeName + " is gone"
	}
	if why == "" || l.app.Now().Sub(since.Time) < l.older {
		return LeftPeerPod{}, false
	}
	return LeftPeerPod{Namespace: pp.Namespace, Name: pp.Name, Pod: claims.PodName(pp), Provider: pp.Spec.CloudProvider,
		Instance: pp.Spec.InstanceID, Since: since, Why: why, age: l.app.age(since.Time)}, true
}

// leftInstances adds the unclaimed instances of each provider that can be loaded here.
func (a *App) leftInstances(ctx context.Context, c *cluster, peerPods []v1alpha1.PeerPod, older time.Duration, report *Leftovers) {
	var providers []string
	for _, pp := range peerPods {
		providers = append(providers, pp.Spec.CloudProvider)
	}
	s, err := a.settings(ctx, c)
	if err != nil {
		for _, name := range (&settings{}).names(append(providers, "all providers")...) {
			report.Unseen[name] = err.Error()
		}
		return
	}
	for _, name := range s.names(providers...) {
		instances, disks, err := a.listCloud(ctx, c, s, name)
		if err != nil {
			report.Unseen[name] = err.Error()
			continue
		}
		for _, i := range unclaimed(instances, peerPods) {
			if !a.isYoung(i.Created, older) {
				report.Instances = append(report.Instances, a.leftInstance(name, i))
			}
		}
		for _, d := range disks {
			if !a.isYoung(d.Created, older) {
				report.Disks = append(report.Disks, LeftDisk{Provider: name, ID: d.ID, Volume: d.Key, Bytes: d.Bytes, Created: d.Created, Instance: d.InstanceID, age: a.ageOrUnknown(d.Created)})
			}
		}
	}
}

func (a *App) isYoung(created time.Time, older time.Duration) bool {
	return !created.IsZero() && a.Now().Sub(created) < older
}

func (a *App) ageOrUnknown(created time.Time) string {
	if created.IsZero() {
		return "?"
	}
	return a.age(created)
}

// listCloud returns a provider's instances, and the disks that no PersistentVolume names.
func (a *App) listCloud(ctx context.Context, c *cluster, s *settings, name string) (instances []provider.Instance, disks []provider.Disk, err error) {
	cloud, err := a.open(ctx, s, name)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, cloud.close()) }()
	id := s.get("CLUSTER_ID")
	if id == "" {
		if id, err = claims.ClusterID(ctx, c.config); err != nil {
			return nil, nil, err
		}
	}
	if instances, err = cloud.instances(ctx, provider.TagValue(id)); err != nil {
		return nil, nil, err
	}
	if disks, err = cloud.disks(ctx, provider.TagValue(id)); err != nil || len(disks) == 0 {
		return instances, nil, err
	}
	volumes, err := list[object](ctx, c, core("", "persistentvolumes"), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	return instances, slices.DeleteFunc(disks, func(d provider.Disk) bool {
		return slices.ContainsFunc(volumes, func(v object) bool { return v.Metadata.Name == d.Key })
	}), nil
}

// unclaimed returns the instances that no PeerPod has by id or sandbox.
func unclaimed(instances []provider.Instance, peerPods []v1alpha1.PeerPod) []provider.Instance {
	claimed := map[string]bool{}
	for _, pp := range peerPods {
		claimed["id "+pp.Spec.InstanceID], claimed["key "+pp.Spec.SandboxID] = true, true
	}
	var left []provider.Instance
	for _, i := range instances {
		if !claimed["id "+i.ID] && (i.Key == "" || !claimed["key "+i.Key]) {
			left = append(left, i)
		}
	}
	return left
}

func (a *App) leftInstance(name string, i provider.Instance) LeftInstance {
	left := LeftInstance{Provider: name, ID: i.ID, Name: i.Name, Created: i.Created, Node: i.Tags[provider.TagNode], age: a.ageOrUnknown(i.Created)}
	if pod := i.Tags[provider.TagPod]; pod != "" {
		left.Pod = i.Tags[provider.TagNamespace] + "/" + pod
	}
	return left
}

func (l *Leftovers) print(w io.Writer) {
	if len(l.PeerPods) == 0 {
		fmt.Fprintln(w, "No PeerPod is left over.")
	} else {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "PEERPOD\tPOD\tPROVIDER\tINSTANCE\tAGE\tWHY")
		for _, p := range l.PeerPods {
			fmt.Fprintf(table, "%s/%s\t%s\t%s\t%s\t%s\t%s\n", p.Namespace, p.Name, dash(p.Pod), dash(p.Provider), dash(p.Instance), p.age, firstLine(p.Why))
		}
		table.Flush()
	}
	l.printInstances(w)
	l.printDisks(w)
	for _, name := range slices.Sorted(maps.Keys(l.Unseen)) {
		fmt.Fprintf(w, "Cannot see the cloud of %s from here: %s\n", name, l.Unseen[name])
	}
}

func (l *Leftovers) printInstances(w io.Writer) {
	if len(l.Instances) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nINSTANCE\tNAME\tPROVIDER\tPOD\tNODE\tAGE")
	for _, i := range l.Instances {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", i.ID, dash(i.Name), i.Provider, dash(i.Pod), dash(i.Node), i.age)
	}
	table.Flush()
	fmt.Fprintln(w, "No PeerPod claims these; peerpod-ctrl removes them after its grace period.")
}

func (l *Leftovers) printDisks(w io.Writer) {
	if len(l.Disks) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nDISK\tVOLUME\tPROVIDER\tGIB\tINSTANCE\tAGE")
	for _, d := range l.Disks {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", d.ID, dash(d.Volume), d.Provider, d.Bytes>>30, dash(d.Instance), d.age)
	}
	table.Flush()
	fmt.Fprintln(w, "No PersistentVolume names these. Nothing removes them: use their data by a PersistentVolume with spec.csi.volumeHandle, or delete them in the cloud.")
}

func dash(text string) string { return cmp.Or(text, "-") }
