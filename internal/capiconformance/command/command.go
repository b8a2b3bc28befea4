// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of capi-conformance.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/capiconformance"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// errFailed has been told by the report.
var errFailed = errors.New("a check failed")

// usageError is what keeps anything from being checked.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// app is one invocation.
type app struct {
	stderr io.Writer

	list                        bool
	file, kubeconfig, core      string
	only, junit, format         string
	inventoryCommand, restartBy string
	timeout                     time.Duration
	limits                      capiconformance.Limits
}

// Main runs capi-conformance and answers its exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal does not wait for the clean-up
	return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := Command()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFailed):
		return exitFailed
	}
	fmt.Fprintln(stderr, "capi-conformance:", err)
	if errors.As(err, &usageError{}) {
		return exitUsage
	}
	return exitFailed
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
and if there are, their templates; a second template of machines that differs
from the first lets the kit look whether templates can change. Kinds are told by
their ends (Cluster, Machine, ClusterTemplate, MachineTemplate) or by the
annotation capi-conformance.outrigger.dev/role with cluster, machine,
cluster-template, machine-template or other. Other objects, such as a Secret with
credentials, are made first in each namespace. In all strings ${NAMESPACE},
${CLUSTER_NAME} and ${NAME} stand for what the kit chooses.

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

// Command is the command line, also for docs/reference.
func Command() *cobra.Command {
	a := &app{}
	cmd := &cobra.Command{
		Use:           "capi-conformance",
		Short:         "Prove that a Cluster API infrastructure provider keeps the contract",
		Long:          long,
		Example:       examples,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unexpected argument %q: name the objects with --file", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.stderr = cmd.ErrOrStderr()
			return a.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usagef("%w; all flags: capi-conformance --help", err)
	})
	a.bind(cmd)
	return cmd
}

func (a *app) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&a.list, "list", false, "list the checks, one a line, and check nothing")
	f.StringVar(&a.file, "file", "", "YAML file with the provider's objects")
	f.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig of an administrator (default: KUBECONFIG, or the one in the home)")
	f.StringVar(&a.core, "core", "play", "who is Cluster API's core: play (the kit), or running (core itself)")
	f.StringVar(&a.only, "run", "", "only the checks whose names match this regular expression")
	f.StringVarP(&a.format, "output", "o", "text", "report on standard output: text or json")
	f.StringVar(&a.junit, "junit", "", "write a JUnit report to this file too")
	f.StringVar(&a.inventoryCommand, "inventory-command", "", "shell command that prints an id of each machine that exists outside, one a line")
	f.StringVar(&a.restartBy, "restart-command", "", "shell command that kills the provider's manager and starts it again")
	f.DurationVar(&a.timeout, "timeout", 0, "end of the whole run; what is made until then is deleted (default: none)")
	f.DurationVar(&a.limits.Provision, "provision-timeout", 5*time.Minute, "the longest until something is provisioned")
	f.DurationVar(&a.limits.Delete, "delete-timeout", 5*time.Minute, "the longest until something is gone")
	f.DurationVar(&a.limits.Quiet, "quiet", 10*time.Second, "how long to look on where nothing is to happen")
	cmd.MarkFlagFilename("junit", "xml")
	cmd.MarkFlagFilename("file", "yaml", "yml")
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("core", cobra.FixedCompletions([]string{"play", "running"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("run", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, check := range capiconformance.Checks() {
			names = append(names, check.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

func (a *app) run(ctx context.Context, stdout io.Writer) error {
	checks, err := a.chosen()
	if err != nil {
		return err
	}
	if a.list {
		return a.writeList(stdout, checks)
	}
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	subject, err := a.open(ctx)
	if err != nil {
		return usageError{err}
	}
	report, err := a.openReport(stdout)
	if err != nil {
		return err
	}
	results := capiconformance.Execute(ctx, report.options(), checks, subject)
	return report.end(subject.Objects.Machine.GetKind(), results)
}

// chosen validates the flags that need no API server.
func (a *app) chosen() ([]capiconformance.Check, error) {
	pattern, err := regexp.Compile(a.only)
	switch {
	case err != nil:
		return nil, usagef("--run: %w", err)
	case a.format != "text" && a.format != "json":
		return nil, usagef("-o %q: want text or json", a.format)
	case a.core != "play" && a.core != "running":
		return nil, usagef("--core %q: want play or running", a.core)
	case !a.list && a.file == "":
		return nil, usagef("name the provider's objects with --file; see capi-conformance --help")
	case a.timeout < 0 || a.limits.Provision <= 0 || a.limits.Delete <= 0 || a.limits.Quiet <= 0:
		return nil, usagef("--timeout must not be negative; --provision-timeout, --delete-timeout and --quiet must be more than nothing")
	}
	var checks []capiconformance.Check
	for _, check := range capiconformance.Checks() {
		if pattern.MatchString(check.Name) {
			checks = append(checks, check)
		}
	}
	if len(checks) == 0 {
		return nil, usagef("--run %q matches no check; capi-conformance --list has them all", a.only)
	}
	return checks, nil
}
