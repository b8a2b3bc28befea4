// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		{Name: "volumes", Run: k.volumes},
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

func (k *checker) workload(ctx context.Context, kind, name string) doctor.Result {
	var w workload
	err := k.c.Get(ctx, api(apps, k.app.system, strings.ToLower(kind)+"s", name), &w)
	if apierrors.IsNotFound(err) && k.outsideOfPods(ctx) {
		return doctor.Warn("nothing, if its program runs under another name or outside of pods; else "+applyHint,
			"there is no %s %s in %s; nodes offer VMs nevertheless", kind, name, k.app.system)
	}
	if err != nil {
		return unread(err, kind+" "+k.app.system+"/"+name)
	}
	x := componentOf(kind, &w)
	return x.readiness()
}

// outsideOfPods reports whether the programs run without the manifests: nodes offer VMs, which an adaptor takes back when
// it ends, and there is no DaemonSet of adaptors. One that is there misses what it came with.
func (k *checker) outsideOfPods(ctx context.Context) bool {
	err := k.c.Get(ctx, api(apps, k.app.system, "daemonsets", adaptorName), &workload{})
	return apierrors.IsNotFound(err) && k.capacity(ctx).Status == doctor.OK
}

// why quotes the condition that says what keeps replicas away.
func why(conditions []metav1.Condition) string {
	for _, kind := range []string{"ReplicaFailure", "Available"} {
		c := meta.FindStatusCondition(conditions, kind)
		if c != nil && (kind == "ReplicaFailure") == (c.Status == "True") {
			return ": " + firstLine(c.Message)
		}
	}
	return ""
}

func (k *checker) class(ctx context.Context) doctor.Result {
	var class nodev1.RuntimeClass
	if err := k.c.Get(ctx, api(nodeGroup, "", "runtimeclasses", RuntimeClass), &class); err != nil {
		return unread(err, "RuntimeClass "+RuntimeClass)
	}
	if class.Handler != RuntimeClass {
		return doctor.Warn("see that the container runtime of the nodes has that handler", "%s has handler %s", RuntimeClass, class.Handler)
	}
	if class.Scheduling == nil || len(class.Scheduling.NodeSelector) == 0 {
		return doctor.Warn(applyHint, "%s has no node selector: its pods may go to nodes without an adaptor", RuntimeClass)
	}
	return doctor.Good("%s, on nodes with %v", RuntimeClass, class.Scheduling.NodeSelector)
}

// expiresSoon is when the webhook should long have renewed its certificates.
const expiresSoon = 7 * 24 * time.Hour

// registration looks whether the API server can call the webhook.
func (k *checker) registration(ctx context.Context) doctor.Result {
	var registered admissionv1.MutatingWebhookConfiguration
	if err := k.c.Get(ctx, api(admission, "", "mutatingwebhookconfigurations", webhookName), &registered); err != nil {
		return unread(err, "MutatingWebhookConfiguration "+webhookName)
	}
	if len(registered.Webhooks) == 0 {
		return doctor.Fail(applyHint, "MutatingWebhookConfiguration %s has no webhooks", webhookName)
	}
	for i := range registered.Webhooks {
		if r := k.entry(ctx, &registered.Webhooks[i]); r.Status != doctor.OK {
			return r
		}
	}
	return doctor.Good("registered, with a certificate authority")
}

func (k *checker) entry(ctx context.Context, w *admissionv1.MutatingWebhook) doctor.Result {
	if s := w.ClientConfig.Service; s != nil {
		if err := k.c.Get(ctx, core(s.Namespace, "services", s.Name), &object{}); err != nil {
			return unread(err, "Service "+s.Namespace+"/"+s.Name+" of webhook "+w.Name)
		}
	}
	look := fmt.Sprintf("kubectl logs deployment/%s -n %s: the webhook writes the CA itself, unless cert-manager does", webhookName, k.app.system)
	if len(w.ClientConfig.CABundle) == 0 {
		return doctor.Fail(look, "webhook %s has no caBundle: the API server does not trust it%s", w.Name, consequence(w.FailurePolicy))
	}
	until, err := latest(w.ClientConfig.CABundle)
	switch left := until.Sub(k.app.Now()); {
	case err != nil:
		return doctor.Fail(look, "the caBundle of webhook %s: %v", w.Name, err)
	case left <= 0:
		return doctor.Fail(look, "the CA of webhook %s has expired at %s%s", w.Name, until.UTC().Format(time.RFC3339), consequence(w.FailurePolicy))
	case left < expiresSoon:
		return doctor.Warn(look, "the CA of webhook %s expires at %s", w.Name, until.UTC().Format(time.RFC3339))
	}
	return doctor.Good("")
}

func consequence(policy *admissionv1.FailurePolicyType) string {
	if policy != nil && *policy == admissionv1.Ignore {
		return "; pods are not sized"
	}
	return "; pods of class " + RuntimeClass + " are refused"
}

// latest returns when the last certificate of a bundle expires.
func latest(bundle []byte) (time.Time, error) {
	var until time.Time
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return until, err
		}
		if cert.NotAfter.After(until) {
			until = cert.NotAfter
		}
	}
	if until.IsZero() {
		return until, fmt.Errorf("it holds no certificate in PEM form")
	}
	return until, nil
}
