// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/internal/timeline"
)

func (a *App) describeCommand() *cobra.Command {
	describe := commandline.Group(&cobra.Command{Use: "describe", Short: "Show a pod and the VM that it runs in"})
	describe.AddCommand(a.shows(&cobra.Command{
		Use: "pod NAME", Aliases: []string{"pods", "po"}, Short: "Show a pod, its PeerPod, its instance and the way to it; what is wrong comes first",
		Example: "kubectl outrigger describe pod web -n shop\nkubectl outrigger describe pod web -o json",
		Args:    onePod,
	}, func(ctx context.Context, c *cluster, namespace string, args []string) (printer, error) {
		return a.describePod(ctx, c, namespace, args[0])
	}))
	return describe
}

// Problem is something that keeps the pod from running, or may.
type Problem struct {
	// Where is the part of the tree with the problem.
	Where   string `json:"where"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Part is a part of the tree: the pod, its PeerPod, the instance, the tunnel,
// the agent.
type Part struct {
	Kind   string   `json:"kind"`
	Name   string   `json:"name,omitempty"`
	State  string   `json:"state"`
	Detail []string `json:"detail,omitempty"`
	Parts  []*Part  `json:"parts,omitempty"`
}

// Description is what describe shows of a pod.
type Description struct {
	Problems []Problem `json:"problems"`
	Tree     *Part     `json:"tree"`
	Events   []Event   `json:"events"`

	uid string // of the pod; empty when it is gone
	pod *pod
}

func (d *Description) problem(where, reason, message, hint string) {
	d.Problems = append(d.Problems, Problem{where, reason, redact.Text(commandline.WithoutProtocol(message)), redact.Text(hint)})
}

// describePod describes a pod, or one that is gone but has left a PeerPod.
func (a *App) describePod(ctx context.Context, c *cluster, namespace, name string) (*Description, error) {
	d, peerPods, err := a.claimsOf(ctx, c, namespace, name)
	if err != nil {
		return nil, err
	}
	events, err := list[corev1.Event](ctx, c, core(namespace, "events"), aboutObject("Pod", name))
	if err != nil {
		return nil, fmt.Errorf("list the Events of pod %s/%s: %w", namespace, name, err)
	}
	a.complete(d, peerPods, pointers(events))
	return d, d.addVolumes(ctx, c)
}

// complete adds what hangs on the pod, and its Events.
func (a *App) complete(d *Description, peerPods []*v1alpha1.PeerPod, events []*corev1.Event) {
	for _, pp := range peerPods {
		d.Tree.Parts = append(d.Tree.Parts, a.ofPeerPod(d, pp))
	}
	d.Events = a.newest(events, d.uid)
	d.explainByEvent()
}

// claimsOf returns the pod with its problems, and its PeerPods, the newest
// first.
func (a *App) claimsOf(ctx context.Context, c *cluster, namespace, name string) (*Description, []*v1alpha1.PeerPod, error) {
	p := &pod{}
	if err := c.Get(ctx, core(namespace, "pods", name), p); apierrors.IsNotFound(err) {
		p = nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("look at pod %s/%s: %w", namespace, name, err)
	}
	all, err := c.peerPods(ctx, namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, nil, err
	}
	d, own := claimed(p, namespace, name, pointers(all))
	if d == nil {
		return nil, nil, fmt.Errorf("there is no pod %s in namespace %s, and no PeerPod of one; choose the namespace with -n", name, namespace)
	}
	if err != nil && p != nil && p.Spec.RuntimeClassName != "" {
		d.Problems = slices.Insert(d.Problems, 0, Problem{Where: "cluster", Reason: "NotInstalled", Message: err.Error()})
	}
	return d, own, nil
}

func pointers[T any](values []T) (all []*T) {
	for i := range values {
		all = append(all, &values[i])
	}
	return all
}

// claimed returns a pod with its problems, and which of all PeerPods are its own, the newest first. A nil pod is gone; it
// has no description if it has left no PeerPod.
func claimed(p *pod, namespace, name string, all []*v1alpha1.PeerPod) (*Description, []*v1alpha1.PeerPod) {
	gone := p == nil
	if gone {
		p = &pod{}
	}
	own := slices.DeleteFunc(slices.Clone(all), func(pp *v1alpha1.PeerPod) bool { return pp.Namespace != namespace || !belongsTo(pp, p, name) })
	if gone && len(own) == 0 {
		return nil, nil
	}
	d := &Description{Problems: []Problem{}, Events: []Event{}, uid: string(p.Metadata.UID), pod: p}
	d.Tree = d.ofPod(p, gone, namespace, name, len(own))
	slices.SortFunc(own, func(x, y *v1alpha1.PeerPod) int {
		return cmp.Or(y.CreationTimestamp.Compare(x.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	return d, own
}

// belongsTo reports whether a PeerPod belongs to the pod, by UID, or, if the pod is
// gone, by name.
func belongsTo(pp *v1alpha1.PeerPod, p *pod, name string) bool {
	if uid := claims.PodUID(pp); uid != "" && p.Metadata.UID != "" {
		return uid == p.Metadata.UID
	}
	return claims.PodName(pp) == name
}

// ofPod describes the pod itself.
func (d *Description) ofPod(p *pod, gone bool, namespace, name string, peerPods int) *Part {
	part := &Part{Kind: "Pod", Name: namespace + "/" + name, State: p.Status.Phase}
	where := "Pod " + name
	if gone {
		part.State = "gone"
		d.problem(where, "PodGone", "the pod is gone and its PeerPod is not", "see `kubectl outrigger gc --dry-run`: peerpod-ctrl removes it once the cloud shows nothing of the instance")
		return part
	}
	if p.Metadata.DeletionTimestamp != nil {
		part.State = "Terminating"
	}
	part.Detail = compact("node "+cmp.Or(p.Spec.NodeName, "none yet"), "runtime class "+cmp.Or(p.Spec.RuntimeClassName, "none"))
	d.podProblems(p, where)
	d.unclaimed(p, where, peerPods)
	return part
}

// podProblems adds the problems in the pod's own status.
func (d *Description) podProblems(p *pod, where string) {
	if c := meta.FindStatusCondition(p.Status.Conditions, "PodScheduled"); c != nil && c.Status == "False" {
		d.problem(where, c.Reason, c.Message, scheduleHint(c.Message))
	}
	if p.Status.Phase == "Failed" || p.Status.Reason != "" {
		d.problem(where, p.Status.Reason, cmp.Or(p.Status.Message, "the pod has failed"), "")
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && !slices.Contains([]string{"", "ContainerCreating", "PodInitializing"}, w.Reason) {
			d.problem(where+", container "+c.Name, w.Reason, cmp.Or(w.Message, "the container does not start"), waitingHint(w.Reason, p.Metadata.Name+" -n "+p.Metadata.Namespace, c.Name))
		}
	}
}

// unclaimed adds a problem if the pod should have a PeerPod and has none.
func (d *Description) unclaimed(p *pod, where string, peerPods int) {
	ended := p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed"
	switch {
	case peerPods > 0, ended, p.Spec.NodeName == "" && p.Spec.RuntimeClassName != "":
	case p.Spec.RuntimeClassName == "":
		d.problem(where, "NoRuntimeClass", "the pod names no runtimeClassName: it runs on its node and in no VM", "set spec.runtimeClassName: "+RuntimeClass+" in a new pod; it cannot be changed in one that exists")
	default:
		d.problem(where, noPeerPod, "nothing claims an instance for the pod: no adaptor was asked for its VM", "see that cloud-api-adaptor is ready on node "+p.Spec.NodeName+" and that its container runtime has the handler of class "+p.Spec.RuntimeClassName+": `kubectl outrigger check`")
	}
}

// explainByEvent replaces the guess about a missing PeerPod by the last Warning Event of
// the pod. Events of the adaptor win: the runtime emits another one after each of them,
// which at best quotes it.
func (d *Description) explainByEvent() {
	at := slices.IndexFunc(d.Problems, func(p Problem) bool { return p.Reason == noPeerPod })
	if at < 0 {
		return
	}
	var last *Event
	for i := range d.Events {
		e := &d.Events[i]
		if e.Type == "Warning" && (last == nil || e.source == adaptorEvents || last.source != adaptorEvents) {
			last = e
		}
	}
	if last == nil {
		return
	}
	p := &d.Problems[at]
	p.Reason, p.Message = last.Reason, last.Message
	if last.source == adaptorEvents {
		p.Hint = "" // the Event's message has one
	}
}

const (
	noPeerPod = "NoPeerPod"
	// adaptorEvents is the source of the adaptor's Events.
	adaptorEvents = "cloud-api-adaptor"
)

func compact(texts ...string) []string {
	return slices.DeleteFunc(texts, func(t string) bool { return t == "" })
}

// scheduleHint returns what to do about a pod that no node takes.
func scheduleHint(message string) string {
	switch {
	case strings.Contains(message, VMResource):
		return "the nodes have no place for another pod VM: see `kubectl outrigger top`; raise PEERPODS_LIMIT_PER_NODE in " + configMapName + ", or add a node"
	case strings.Contains(message, "node selector"), strings.Contains(message, "affinity"):
		return "label the nodes that may have pod VMs: kubectl label node NODE " + workerLabel + "="
	}
	return "see the requests, node selector and tolerations of the pod, and the scheduling of RuntimeClass " + RuntimeClass
}

// waitingHint returns what to do about a container that does not start.
func waitingHint(reason, pod, container string) string {
	switch reason {
	case "ImagePullBackOff", "ErrImagePull", "InvalidImageName":
		return "see that the image exists, that the VM reaches the registry, and that the pod names its imagePullSecrets"
	case "CrashLoopBackOff":
		return "see what it said: kubectl logs " + pod + " -c " + container + " --previous"
	}
	return "see what the VM said: kubectl outrigger logs --console " + pod
}

func (a *App) timelineCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "timeline POD", Short: "Show where the time of a pod's start went", Args: onePod,
		Long: `Show the steps of a pod's start, those of its node and those of its guest, with
their beginnings and lengths in seconds. They come from the PeerPod: the guest's
are there if the adaptor has PEERPOD_TIMELINE=true, once the pod's first container
runs, each name once, from the first beginning to the last end. Without that, layer
by layer, and as long as the guest runs: outrigger timeline, on the node.`,
		Example: "kubectl outrigger timeline web -n shop\nkubectl outrigger timeline web -o svg >web.svg",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := a.connect()
			if err != nil {
				return err
			}
			d, peerPods, err := a.claimsOf(cmd.Context(), c, namespace, args[0])
			if err != nil {
				return err
			}
			if len(peerPods) == 0 || len(peerPods[0].Status.Steps) == 0 {
				return withProblems(fmt.Sprintf("no step of the start of pod %s/%s is known yet", namespace, args[0]), d.Problems)
			}
			return timeline.Write(a.Stdout, output, namespace+"/"+args[0], ofSteps(peerPods[0].Status.Steps), timeline.LeastWidth)
		},
	}
	commandline.Form(cmd, &output, "output", "form of the output", timeline.Forms...)
	return cmd
}

// withProblems returns an error with the problems that may be why.
func withProblems(text string, problems []Problem) error {
	for _, p := range problems {
		text += "\n" + p.Where + ": " + prefixed(p.Reason) + p.Message
	}
	return errors.New(text)
}

// ofSteps returns the timeline of a PeerPod's steps.
func ofSteps(steps []v1alpha1.Step) timeline.Timeline {
	t := timeline.Timeline{}
	for _, s := range steps {
		step := timeline.Step{Name: s.Name, Where: timeline.Node, Start: s.Time.Time, End: s.Time.Time}
		if s.StartTime != nil {
			step.Start = s.StartTime.Time
		}
		if s.Place == v1alpha1.PlaceGuest {
			step.Where = timeline.Guest
		}
		t.Steps = append(t.Steps, step)
	}
	if !slices.ContainsFunc(t.Steps, func(s timeline.Step) bool { return s.Where == timeline.Guest }) {
		t.Missing = "the PeerPod has no steps of the guest: the adaptor writes them if PEERPOD_TIMELINE is true, once a container runs; on the node, outrigger timeline asks the guest"
	}
	return t.With()
}
