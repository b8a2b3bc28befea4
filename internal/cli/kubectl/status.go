// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/cli/doctor"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/internal/version"
)

const (
	managerGroup = "/apis/ccm.outrigger.dev/v1alpha1"
	// reread is how often status --wait looks at what no watch shows, such as rights.
	reread = 30 * time.Second
)

func (a *App) statusCommand() *cobra.Command {
	var wait bool
	timeout := 5 * time.Minute
	cmd := a.shows(&cobra.Command{
		Use: "status", Short: "Show what is installed and whether it is ready", Args: cobra.NoArgs,
		Long: `Show what of Outrigger is installed, how much of it is ready and in which versions,
PeerPods by phase, pools, and what is wrong, with what to do. Exit code 1 if something
is not ready; warnings do not count. PeerPods are those of all namespaces, unless -n
names one.`,
	}, func(ctx context.Context, c *cluster, _ string, _ []string) (printer, error) {
		look := a.status
		if wait {
			look = func(ctx context.Context, c *cluster) *Status { return a.awaitReady(ctx, c, timeout) }
		}
		s := look(ctx, c)
		if !s.Ready {
			return s, exitCode(exitFailure)
		}
		return s, nil
	})
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until all is ready; what is waited for goes to the standard error")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait")
	return cmd
}

// PoolStatus is a PodVMPool.
type PoolStatus struct {
	Name     string `json:"name"`
	MinReady int32  `json:"minReady"`
	MaxReady int32  `json:"maxReady"`
	Ready    int32  `json:"ready"`
	Starting int32  `json:"starting"`
	Claimed  int32  `json:"claimed"`
}

// Status is what is installed and how it is.
type Status struct {
	Ready      bool        `json:"ready"`
	Components []Component `json:"components"`
	// PeerPods counts them by phase.
	PeerPods map[v1alpha1.Phase]int `json:"peerPods"`
	Pools    []PoolStatus           `json:"pools"`
	// Problems are errors, which keep it from being ready, and warnings.
	Problems []doctor.Result `json:"problems"`
}

func (s *Status) problem(name string, r doctor.Result) {
	if r.Status != doctor.OK {
		r.Name = name
		s.Problems = append(s.Problems, r)
	}
}

func (a *App) status(ctx context.Context, c *cluster) *Status {
	s := &Status{PeerPods: map[v1alpha1.Phase]int{}, Pools: []PoolStatus{}, Problems: []doctor.Result{}}
	var seen bool
	var err error
	if s.Components, seen, err = a.components(ctx, c); err != nil {
		s.problem("components", unread(err, "what is installed"))
	} else if !seen {
		s.problem("components", doctor.Warn("use an account that may list workloads in all namespaces", "only namespace %s was looked at", a.system))
	}
	for i := range s.Components {
		x := &s.Components[i]
		verdict := x.verdict()
		s.problem(x.Program, verdict)
		if verdict.Status == doctor.Error {
			s.Problems = append(s.Problems, x.pods(ctx, c)...)
		}
	}
	s.checks(ctx, a, c)
	s.pools(ctx, c)
	s.managers(ctx, c)
	s.problem("versions", skew(version.Version, s.Components))
	s.Ready = !slices.ContainsFunc(s.Problems, func(r doctor.Result) bool { return r.Status == doctor.Error })
	return s
}

// has reports whether one of the programs is a component.
func (s *Status) has(programs ...string) bool {
	return slices.ContainsFunc(s.Components, func(x Component) bool { return slices.Contains(programs, x.Program) })
}

// checks adds what `check` finds, and the PeerPods, where pods can run in VMs. Controller and webhook may be left out
// of an installation.
func (s *Status) checks(ctx context.Context, a *App, c *cluster) {
	peerPods, err := c.peerPods(ctx, a.namespace)
	if apierrors.IsNotFound(err) && !s.has("cloud-api-adaptor", relayName, controllerName, webhookName) {
		if len(s.Components) == 0 {
			s.problem("components", doctor.Fail(applyHint, "nothing of Outrigger is installed"))
		}
		return
	}
	for i := range peerPods {
		s.PeerPods[claims.PhaseOf(&peerPods[i])]++
	}
	done := map[string]bool{
		"adaptor": s.has("cloud-api-adaptor"), "relay": s.has(relayName), "controller": true, "webhook": true, "webhook-ca": !s.has(webhookName),
	}
	for _, r := range a.check(ctx, c, false).Results {
		if !done[r.Name] {
			s.problem(r.Name, r)
		}
	}
}

func (s *Status) pools(ctx context.Context, c *cluster) {
	all, err := list[v1alpha1.PodVMPool](ctx, c, api(peerPodGroup, "", v1alpha1.PoolResource), nil)
	if err != nil && !apierrors.IsNotFound(err) {
		s.problem("pools", unread(err, "the list of PodVMPools"))
	}
	for _, p := range all {
		s.Pools = append(s.Pools, PoolStatus{p.Name, p.Spec.MinReady, p.Spec.Most(), p.Status.Ready, p.Status.Starting, p.Status.Claimed})
		if r := meta.FindStatusCondition(p.Status.Conditions, "Ready"); r != nil && r.Status != metav1.ConditionTrue {
			s.problem("pool "+p.Name, doctor.Warn("kubectl describe podvmpool "+p.Name, "%s%s", prefixed(r.Reason), r.Message))
		}
	}
}

// managers adds what the operator says of cloud controller managers.
func (s *Status) managers(ctx context.Context, c *cluster) {
	all, err := list[struct {
		object
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}](ctx, c, api(managerGroup, "", "cloudcontrollermanagers"), nil)
	if err != nil && !apierrors.IsNotFound(err) {
		s.problem("managers", unread(err, "the list of CloudControllerManagers"))
	}
	for _, m := range all {
		look := "kubectl describe cloudcontrollermanager " + m.Metadata.Name
		for _, condition := range m.Status.Conditions {
			switch is := condition.Status == metav1.ConditionTrue; {
			case condition.Type == "Available" && !is, condition.Type == "Degraded" && is:
				s.problem("manager "+m.Metadata.Name, doctor.Fail(look, "%s%s", prefixed(condition.Reason), condition.Message))
			case condition.Type == "Warning" && is:
				s.problem("manager "+m.Metadata.Name, doctor.Warn(look, "%s%s", prefixed(condition.Reason), condition.Message))
			}
		}
		if len(m.Status.Conditions) == 0 {
			s.problem("manager "+m.Metadata.Name, doctor.Fail(look, "the operator has not looked at it yet"))
		}
	}
}

// awaitReady returns the first status that is ready, or the last before the time was over.
func (a *App) awaitReady(ctx context.Context, c *cluster, timeout time.Duration) *Status {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(timeout, cancel).Stop() // with a deadline, the client's limit of requests is an error before it
	changes := c.changes(ctx, api(apps, "", "daemonsets"), api(apps, "", "deployments"), core("", "nodes"), core(a.system, "configmaps"),
		api(admission, "", "mutatingwebhookconfigurations"), api(definitions, "", "customresourcedefinitions"), api(managerGroup, "", "cloudcontrollermanagers"))
	var last *Status
	for said := ""; ; {
		s := a.status(ctx, c)
		if ctx.Err() != nil && last != nil { // it was read in part
			s = last
		}
		if now := s.waitsFor(); now != said && ctx.Err() == nil {
			fmt.Fprint(a.Stderr, now)
			said = now
		}
		last = s
		if s.Ready || ctx.Err() != nil {
			return s
		}
		select {
		case <-changes:
		case <-time.After(reread):
		case <-ctx.Done():
			return s
		}
	}
}

// waitsFor returns a line for each error.
func (s *Status) waitsFor() string {
	var text strings.Builder
	for _, r := range s.Problems {
		if r.Status == doctor.Error {
			fmt.Fprintf(&text, "waiting for %s: %s\n", r.Name, firstLine(r.Detail))
		}
	}
	return text.String()
}

func (s *Status) print(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	printComponents(table, s.Components)
	if len(s.PeerPods) > 0 {
		fmt.Fprintln(table, "\nPEERPODS\tNUMBER")
	}
	for _, phase := range phases {
		if n := s.PeerPods[phase]; n > 0 {
			fmt.Fprintf(table, "%s\t%d\n", phase, n)
		}
	}
	if len(s.Pools) > 0 {
		fmt.Fprintln(table, "\nPOOL\tREADY\tMIN\tMAX\tSTARTING\tCLAIMED")
	}
	for _, p := range s.Pools {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\n", p.Name, p.Ready, p.MinReady, p.MaxReady, p.Starting, p.Claimed)
	}
	fmt.Fprintln(table)
	table.Flush()
	problems := doctor.Report{Results: slices.Clone(s.Problems)}
	for i := range problems.Results {
		problems.Results[i].Detail = redact.Line(problems.Results[i].Detail)
	}
	problems.PrintResults(w)
	if s.Ready {
		fmt.Fprintln(w, "All that is installed is ready.")
	} else {
		fmt.Fprintln(w, "Not ready: see what FAIL says.")
	}
}

func printComponents(table io.Writer, components []Component) {
	if len(components) > 0 {
		fmt.Fprintln(table, "COMPONENT\tKIND\tNAMESPACE\tREADY\tVERSION")
	}
	for _, x := range components {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d/%d\t%s\n", x.Name, x.Kind, x.Namespace, x.Ready, x.Desired, x.Version)
	}
}
