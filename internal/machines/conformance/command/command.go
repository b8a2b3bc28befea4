// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of capi-conformance.
package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/internal/checkreport"
	"github.com/outrigger/outrigger/internal/machines/conformance"
	"github.com/outrigger/outrigger/internal/program"
)

type app struct {
	stderr io.Writer

	checkreport.Kit[conformance.Check]
	file, kubeconfig, core      string
	inventoryCommand, restartBy string
	watchFilter, release        string
	limits                      conformance.Limits
}

// Main runs capi-conformance and returns its exit code.
func Main() int {
	log.SetLogger(logr.Discard()) // warnings of the API server are not for users
	return program.UntilSignal(func(ctx context.Context) int { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := Command()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return checkreport.Exit("capi-conformance", cmd.ExecuteContext(ctx), stderr)
}

const long = `capi-conformance makes Clusters and Machines with the infrastructure of a Cluster
API provider, looks whether each promise of the contract v1beta2 holds, and
deletes what it made. The provider may be any: all that is known of it is a file
with its objects.

Wanted are an API server with the definitions of Cluster API's core and of the
provider, the provider's manager at work there, and a kubeconfig that may do
everything. Core may work there too (--core running); by default the kit plays
core's part, and core must not work there (--core play). Bootstrap data is an
empty #cloud-config.

The file holds YAML documents: an InfraCluster, an InfraMachine or its template,
and if there are, an InfraMachinePool and templates; a second template of
machines that differs from the first lets the kit look whether templates can
change. Kinds are told by their ends (Cluster, Machine, MachinePool, and Template
of them) or by the annotation capi-conformance.outrigger.dev/role with cluster,
machine, machine-pool, cluster-template, machine-template, machine-pool-template,
failing-machine or other. A failing machine is one that the cloud refuses, such
as of a size that there is not. Other objects, such as a Secret with credentials,
are made first in each namespace. In all strings ${NAMESPACE}, ${CLUSTER_NAME}
and ${NAME} stand for what the kit chooses.

Each check has namespaces capi-conformance-... of its own. What could not be
deleted is listed at the end: nobody else will remove it.

Exit status: 0 all checks passed or were skipped, 1 a check failed, 2 nothing
was checked: usage, file, or no such API server.`

const examples = `  # every check, one a line, with the promise that it proves
  capi-conformance --list

  # a provider by its objects
  capi-conformance --kubeconfig admin.conf --file objects.yaml

  # also what exists outside, one id a line, and restarts of the manager
  capi-conformance --file objects.yaml --inventory-command 'mycloud list --ids' \
    --restart-command 'kubectl -n mycloud-system delete pod --all --grace-period=0 --force'

  # pauses only, beside a core that runs, for CI
  capi-conformance --file objects.yaml --core running --run '^pause-' --junit report.xml`

// Command returns the command line, also for docs/reference.
func Command() *cobra.Command {
	a := &app{}
	cmd := &cobra.Command{Use: "capi-conformance", Short: "Prove that a Cluster API infrastructure provider keeps the contract", Long: long, Example: examples}
	checkreport.Complete(cmd, "name the objects with --file", func(ctx context.Context, stdout, stderr io.Writer) error {
		a.stderr = stderr
		return a.run(ctx, stdout)
	})
	a.bind(cmd)
	return cmd
}

func row(c conformance.Check) checkreport.Check {
	return checkreport.Check{Name: c.Name, Contract: c.Contract}
}

func (a *app) bind(cmd *cobra.Command) {
	a.Kit = checkreport.Kit[conformance.Check]{Checks: conformance.Checks(), Row: row}
	a.Bind(cmd)
	f := cmd.Flags()
	f.StringVar(&a.file, "file", "", "YAML file with the provider's objects")
	f.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig of an administrator (default: KUBECONFIG, or the one in the home)")
	f.StringVar(&a.core, "core", "play", "who is Cluster API's core: play (the kit), or running (core itself)")
	f.StringVar(&a.inventoryCommand, "inventory-command", "", "shell command that prints an id of each machine that exists outside, one a line")
	f.StringVar(&a.restartBy, "restart-command", "", "shell command that kills the provider's manager and starts it again")
	f.StringVar(&a.watchFilter, "watch-filter", "", "value of --watch-filter of the provider's manager: the kit's objects get that label")
	f.StringVar(&a.release, "release", "", "folder of a release of the provider: metadata.yaml and infrastructure-components.yaml")
	f.DurationVar(&a.limits.Provision, "provision-timeout", 5*time.Minute, "the longest until something is provisioned")
	f.DurationVar(&a.limits.Delete, "delete-timeout", 5*time.Minute, "the longest until something is gone")
	f.DurationVar(&a.limits.Quiet, "quiet", 10*time.Second, "how long to look on where nothing is to happen")
	cmd.MarkFlagFilename("file", "yaml", "yml")
	cmd.MarkFlagDirname("release")
	cmd.RegisterFlagCompletionFunc("core", cobra.FixedCompletions([]string{"play", "running"}, cobra.ShellCompDirectiveNoFileComp))
}

func (a *app) run(ctx context.Context, stdout io.Writer) error {
	checks, err := a.chosen()
	if err != nil {
		return err
	}
	if a.List {
		return a.WriteList(stdout, checks)
	}
	if a.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.Timeout)
		defer cancel()
	}
	subject, err := a.open(ctx)
	if err != nil {
		return program.UsageError(err)
	}
	report, err := checkreport.Open(checkreport.Options{Format: a.Format, JUnit: a.JUnit, Verbose: a.Verbose, Core: a.core, Stdout: stdout, Stderr: a.stderr})
	if err != nil {
		return err
	}
	if err := a.tellCore(stdout); err != nil {
		return err
	}
	results := conformance.Execute(ctx, conformance.Options{Started: report.Started, Ended: report.Ended}, checks, subject)
	return report.End(subject.Objects.Machine.GetKind(), results)
}

// chosen validates the flags that need no API server.
func (a *app) chosen() ([]conformance.Check, error) {
	switch {
	case a.core != "play" && a.core != "running":
		return nil, program.Usagef("--core %q: want play or running", a.core)
	case !a.List && a.file == "":
		return nil, program.Usagef("name the provider's objects with --file; see capi-conformance --help")
	case a.Timeout < 0 || a.limits.Provision <= 0 || a.limits.Delete <= 0 || a.limits.Quiet <= 0:
		return nil, program.Usagef("--timeout must not be negative; --provision-timeout, --delete-timeout and --quiet must be more than nothing")
	}
	return a.Choose("capi-conformance")
}

func (a *app) tellCore(w io.Writer) error {
	if a.Format == checkreport.JSON {
		return nil
	}
	who := "core is played by the kit (--core play)"
	if a.core == "running" {
		who = "core runs by itself (--core running)"
	}
	_, err := fmt.Fprintln(w, who)
	return err
}
