// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/outrigger/outrigger/internal/cli/doctor"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/version"
)

// Component is one workload of an installation.
type Component struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	// Program is the last part of its image's name.
	Program string `json:"program"`
	Image   string `json:"image"`
	// Version is the image's tag, or its digest if it has no tag.
	Version string `json:"version"`
	Ready   int    `json:"ready"`
	Desired int    `json:"desired"`

	updated  int
	workload *workload
}

const (
	daemonSetKind  = "DaemonSet"
	deploymentKind = "Deployment"
)

// programs are images of workloads, wherever they are installed. Those of providers and of cloud controller
// managers have names that others use as well: the former count in the system namespace only, and the
// latter are seen by their operator.
var programs = []string{"cloud-api-adaptor", relayName, controllerName, webhookName, "node-installer", "capi-manager", "ccm-operator"}

// components returns what is installed, by namespace and name. seen is false if only the system namespace
// could be looked at.
func (a *App) components(ctx context.Context, c *cluster) (found []Component, seen bool, err error) {
	found, err = a.componentsIn(ctx, c, "")
	if apierrors.IsForbidden(err) {
		found, err = a.componentsIn(ctx, c, a.system)
		return found, false, err
	}
	return found, true, err
}

func (a *App) componentsIn(ctx context.Context, c *cluster, namespace string) ([]Component, error) {
	found := []Component{}
	for _, kind := range []string{daemonSetKind, deploymentKind} {
		all, err := list[workload](ctx, c, api(apps, namespace, strings.ToLower(kind)+"s"), nil)
		if err != nil {
			return nil, fmt.Errorf("list %ss: %w", kind, err)
		}
		for i := range all {
			if component, ok := a.component(kind, &all[i]); ok {
				found = append(found, component)
			}
		}
	}
	slices.SortFunc(found, func(x, y Component) int {
		return strings.Compare(x.Namespace+"/"+x.Name, y.Namespace+"/"+y.Name)
	})
	return found, nil
}

// component reports whether a workload is Outrigger's.
func (a *App) component(kind string, w *workload) (Component, bool) {
	for _, container := range w.Spec.Template.Spec.Containers {
		program, version := splitImage(container.Image)
		if slices.Contains(programs, program) || w.Metadata.Namespace == a.system && strings.HasPrefix(program, "provider-") {
			x := componentOf(kind, w)
			x.Program, x.Image, x.Version = program, container.Image, version
			return x, true
		}
	}
	return Component{}, false
}

// componentOf returns a component without its program.
func componentOf(kind string, w *workload) Component {
	s := &w.Status
	x := Component{Name: w.Metadata.Name, Kind: kind, Namespace: w.Metadata.Namespace, Ready: s.ReadyReplicas, Desired: 1, updated: s.UpdatedReplicas, workload: w}
	switch {
	case kind == daemonSetKind:
		x.Ready, x.Desired, x.updated = s.NumberReady, s.DesiredNumberScheduled, s.UpdatedNumberScheduled
	case w.Spec.Replicas != nil:
		x.Desired = *w.Spec.Replicas
	}
	return x
}

// readiness returns whether all, some or none of it is ready.
func (x *Component) readiness() doctor.Result {
	at := fmt.Sprintf("%s/%s -n %s", strings.ToLower(x.Kind), x.Name, x.Namespace)
	said := fmt.Sprintf("%d of %d of %s are ready%s", x.Ready, x.Desired, x.Name, why(x.workload.Status.Conditions))
	switch {
	case x.Desired == 0 && x.Kind == daemonSetKind:
		return doctor.Fail(labelHint, "%s runs on no node: none has its node selector %v", x.Name, x.workload.Spec.Template.Spec.NodeSelector)
	case x.Desired == 0:
		return doctor.Fail("kubectl scale "+at+" --replicas=1", "%s is scaled to nothing", x.Name)
	case x.Ready == 0:
		return doctor.Fail("kubectl describe "+at+"; kubectl logs "+at, "%s", said)
	case x.Ready < x.Desired:
		return doctor.Warn("kubectl describe "+at+"; kubectl logs "+at, "%s", said)
	}
	return doctor.Good("%d of %d of %s are ready", x.Ready, x.Desired, x.Name)
}

// splitImage returns the last part of an image's name, and its tag, else its digest, shortened, else latest.
func splitImage(image string) (program, version string) {
	named, digest, _ := strings.Cut(image, "@")
	program, version, tagged := strings.Cut(path.Base(named), ":")
	switch {
	case tagged:
	case digest != "":
		version = digest[:min(len(digest), len("sha256:")+12)]
	default:
		version = "latest"
	}
	return program, version
}

// verdict returns what is wrong with a component.
func (x *Component) verdict() doctor.Result {
	result, w := x.readiness(), x.workload
	switch {
	case result.Status != doctor.OK:
		result.Status = doctor.Error // some that are ready are not all
	case w.Metadata.Generation > w.Status.ObservedGeneration, x.updated < x.Desired && w.Spec.UpdateStrategy.Type != onDelete:
		return doctor.Fail(fmt.Sprintf("kubectl rollout status %s/%s -n %s", strings.ToLower(x.Kind), x.Name, x.Namespace),
			"%s is being rolled out: %d of %d are updated", x.Name, x.updated, x.Desired)
	case x.updated < x.Desired:
		return doctor.Warn("drain these nodes one by one, and delete its pod there", "%s is of an earlier version on %d of %d nodes", x.Name, x.Desired-x.updated, x.Desired)
	}
	return result
}

// pods says of each of the component's pods that is not ready where it is and why.
func (x *Component) pods(ctx context.Context, c *cluster) []doctor.Result {
	selector := metav1.FormatLabelSelector(&x.workload.Spec.Selector)
	pods, err := list[pod](ctx, c, core(x.Namespace, "pods"), map[string]string{"labelSelector": selector})
	if err != nil {
		return []doctor.Result{unread(err, "the pods of "+x.Name)}
	}
	var wrong []doctor.Result
	for i := range pods {
		if p := &pods[i]; !p.ready() {
			wrong = append(wrong, p.failure(x.Program))
		}
	}
	return wrong
}

func (p *pod) failure(program string) doctor.Result {
	d := &Description{}
	d.podProblems(p, p.Metadata.Name)
	why := []string{}
	for _, problem := range d.Problems {
		why = append(why, prefixed(problem.Reason)+problem.Message)
	}
	if len(why) == 0 {
		why = []string{"it is " + strings.ToLower(p.Status.Phase) + " and not ready"}
	}
	where := p.Metadata.Namespace + " " + p.Metadata.Name
	r := doctor.Fail(fmt.Sprintf("kubectl logs -n %s --all-containers; kubectl describe pod -n %s", where, where), "%s", strings.Join(why, "; "))
	r.Name = program
	if p.Spec.NodeName != "" {
		r.Detail = "node " + p.Spec.NodeName + ": " + r.Detail
	}
	return r
}

// skew warns of versions that differ in more than their patch, this program's included. Tags that are not versions are
// not compared.
func skew(client string, components []Component) doctor.Result {
	programs := map[string][]string{}
	for _, x := range append([]Component{{Program: Program, Version: client}}, components...) {
		if minor := minorOf(x.Version); minor != "" && !slices.Contains(programs[minor], x.Program) {
			programs[minor] = append(programs[minor], x.Program)
		}
	}
	if len(programs) < 2 {
		return doctor.Good("")
	}
	var texts []string
	for minor, names := range programs {
		texts = append(texts, minor+" ("+strings.Join(names, ", ")+")")
	}
	slices.Sort(texts)
	return doctor.Warn("upgrade what is older, in the order of docs/versions.md", "the versions differ: %s", strings.Join(texts, ", "))
}

// minorOf returns major and minor of a version, or nothing.
func minorOf(version string) string {
	v, err := utilversion.ParseSemantic(version)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("v%d.%d", v.Major(), v.Minor())
}

// Versions are those of this program and of what is installed.
type Versions struct {
	Client     string      `json:"client"`
	Components []Component `json:"components,omitempty"`
}

func (a *App) versionCommand() *cobra.Command {
	var output string
	var client bool
	cmd := &cobra.Command{
		Use: "version", Short: "Show the versions of this program and of what is installed", Args: cobra.NoArgs,
		Long: `Show the versions of this program and of what is installed, which are the tags of
the images. Versions that differ in more than their patch are warned of.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := Versions{Client: version.String()}
			if !client {
				c, _, err := a.connect()
				if err == nil {
					v.Components, _, err = a.components(cmd.Context(), c)
				}
				if err != nil {
					fmt.Fprintln(a.Stdout, Program, v.Client)
					return err
				}
			}
			if w := skew(version.Version, v.Components); w.Detail != "" {
				fmt.Fprintf(a.Stderr, "warning: %s: %s\n", w.Detail, w.Fix)
			}
			return a.print(output, v, v.print)
		},
	}
	cmd.Flags().BoolVar(&client, "client", false, "only this program's; no cluster is asked")
	commandline.Form(cmd, &output, "output", "form of the output", "text", "json")
	return cmd
}

func (v Versions) print(w io.Writer) {
	fmt.Fprintln(w, Program, v.Client)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	printComponents(table, v.Components)
	table.Flush()
}
