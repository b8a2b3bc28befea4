// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/internal/cli/doctor"
)

const checkName = "check"

func (a *App) checkCommand() *cobra.Command {
	var pre bool
	cmd := a.shows(&cobra.Command{
		Use: checkName, Short: "Look whether the cluster can run pods in VMs", Args: cobra.NoArgs,
		Long: `Look whether the cluster can run pods in VMs, and say how to mend what cannot
work. With --pre look whether Outrigger can be installed, before it is. Nothing is
changed. Exit codes: 0 all is well, 1 warnings, 2 errors, also
of the command itself.`,
	}, func(ctx context.Context, c *cluster, _ string, _ []string) (printer, error) {
		report := checkReport{a.check(ctx, c, pre), pre}
		if code := report.ExitCode(); code != 0 {
			return report, exitCode(code)
		}
		return report, nil
	})
	cmd.Flags().BoolVar(&pre, "pre", false, "before Outrigger is installed: whether it can be")
	return cmd
}

// check returns one report; a cluster that does not answer is asked once.
func (a *App) check(ctx context.Context, c *cluster, pre bool) doctor.Report {
	first := doctor.Run(ctx, []doctor.Check{{Name: "api-server", Run: (&checker{a, c}).server}})
	if first.Status == doctor.Error {
		return first
	}
	k := &checker{a, c}
	checks := k.installed()
	if pre {
		checks = k.before()
	}
	rest := doctor.Run(ctx, checks)
	rest.Results = append(first.Results, rest.Results...)
	if rest.Status == doctor.OK {
		rest.Status = first.Status
	}
	return rest
}

// checkReport is a report with what it is about.
type checkReport struct {
	doctor.Report
	pre bool
}

func (r checkReport) print(w io.Writer) {
	r.PrintResults(w)
	goal := "this cluster can run pods in VMs"
	if r.pre {
		goal = "Outrigger can be installed"
	}
	sentence := strings.ToUpper(goal[:1]) + goal[1:]
	switch r.Status {
	case doctor.OK:
		fmt.Fprintf(w, "%s.\n", sentence)
	case doctor.Warning:
		fmt.Fprintf(w, "%s, with the warnings above.\n", sentence)
	default:
		fmt.Fprintf(w, "Not yet: fix what FAIL says, then %s.\n", goal)
	}
}

// checker is what the checks share.
type checker struct {
	app *App
	c   *cluster
}

// before returns the checks that do not need an installation.
func (k *checker) before() []doctor.Check {
	return []doctor.Check{
		{Name: "rights", Run: k.mayInstall},
		{Name: "nodes", Run: k.workers},
		{Name: "handler", Run: k.handler},
		{Name: "crd", Run: k.olderDefinition},
		{Name: "runtimeclass", Run: k.olderClass},
		{Name: "webhook", Run: k.olderWebhook},
	}
}

// installed returns the checks of an installation. A check that fails may cause the
// later ones to fail.
func (k *checker) installed() []doctor.Check {
	return []doctor.Check{
		{Name: "crd", Run: k.definition},
		{Name: "rights", Run: k.mayLook},
		{Name: "rbac", Run: k.daemonRights},
		{Name: "settings", Run: k.settings},
		{Name: "nodes", Run: k.workers},
		{Name: "adaptor", Run: func(ctx context.Context) doctor.Result { return k.workload(ctx, daemonSetKind, adaptorName) }},
		{Name: "relay", Run: func(ctx context.Context) doctor.Result { return k.workload(ctx, daemonSetKind, relayName) }},
		{Name: "controller", Run: func(ctx context.Context) doctor.Result { return k.workload(ctx, deploymentKind, controllerName) }},
		{Name: "webhook", Run: func(ctx context.Context) doctor.Result { return k.workload(ctx, deploymentKind, webhookName) }},
		{Name: "webhook-ca", Run: k.registration},
		{Name: "runtimeclass", Run: k.class},
		{Name: "handler", Run: k.handler},
		{Name: "capacity", Run: k.capacity},
		{Name: "peerpods", Run: k.claims},
	}
}

const applyHint = "kubectl apply -k deploy/overlays/PROVIDER"

// unread returns the result if an object cannot be read: a missing object is an error
// of the installation, a forbidden one leaves the check undecided.
func unread(err error, what string) doctor.Result {
	switch {
	case apierrors.IsNotFound(err):
		return doctor.Fail(applyHint, "%s is not there", what)
	case apierrors.IsForbidden(err):
		return doctor.Warn("use an account that may read it", "%s cannot be looked at: %v", what, err)
	}
	return doctor.Fail("see that the API server works", "%s cannot be looked at: %v", what, err)
}
