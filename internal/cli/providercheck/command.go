// SPDX-License-Identifier: Apache-2.0

// Package providercheck is the command line of provider-check: the conformance
// suite on a plugin's file or on a provider that serves a socket.
package providercheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/checkreport"
	"github.com/outrigger/outrigger/internal/cli/providercheck/record"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider/conformance"
)

// app is one invocation.
type app struct {
	getenv func(string) string
	stderr io.Writer

	checkreport.Kit[conformance.Check]
	endpoint, plugin string
	set, noAccess    []string
	record, replay   string
	recorder         *record.Recorder
	records          string // folder that the recorder writes to
	known            []record.Exchange
	subject          conformance.Subject
}

// Main runs provider-check and returns its exit code.
func Main() int {
	return program.UntilSignal(func(ctx context.Context) int { return run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr) })
}

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	cmd := newCommand(getenv)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return checkreport.Exit("provider-check", cmd.ExecuteContext(ctx), stderr)
}

// Command returns the command line, for docs/reference.
func Command() *cobra.Command { return newCommand(func(string) string { return "" }) }

const long = `provider-check makes instances through a provider, looks whether each promise of
the contract holds, and deletes what it made. It needs no cluster and no
cloud-api-adaptor, and the provider may be written in any language.

The provider is a plugin's file (--plugin), which is loaded as cloud-api-adaptor
would load it, or one that runs already and serves a socket (--endpoint). Its
settings are those of cloud-api-adaptor: environment variables, or --set with
the name of a flag or variable. Secrets are taken from variables only.

Every instance carries the tag outrigger-cluster=conformance unless --tag says
otherwise. What could not be deleted is listed at the end.

Exit status: 0 all checks passed or were skipped, 1 a check failed, 2 nothing
was checked: usage, settings, or no such provider.`

const examples = `  # every check, one a line, with the promise that it proves
  provider-check --list

  # a process plugin; its settings come from the environment and --set
  MYCLOUD_TOKEN=$(cat token) provider-check --plugin /cloud-providers/mycloud --set mycloud-zone=a

  # a provider that serves a socket, one check only
  provider-check --endpoint unix:///run/peerpod/provider.sock --run '^key-concurrent$'

  # in CI, on a real cloud: few and small instances, long limits, a JUnit report
  provider-check --plugin ./mycloud --slow --parallel 2 --instance-type small --junit report.xml`

func newCommand(getenv func(string) string) *cobra.Command {
	a := &app{getenv: getenv}
	cmd := &cobra.Command{Use: "provider-check", Short: "Prove that a provider keeps the contract", Long: long, Example: examples}
	checkreport.Complete(cmd, "name the provider with --plugin or --endpoint", func(ctx context.Context, stdout, stderr io.Writer) error {
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
	f.StringVar(&a.plugin, "plugin", "", "FILE of a process plugin or Go plugin (.so); its name is the provider's")
	f.StringVar(&a.endpoint, "endpoint", "", "socket of a provider that runs already: unix:///PATH")
	f.StringArrayVar(&a.set, "set", nil, "a setting of the provider as NAME=VALUE; NAME is its flag or variable (repeatable)")
	f.StringArrayVar(&a.noAccess, "no-access", nil, "a setting as NAME=VALUE with which the cloud lets nobody in, such as the id of a credential that was deleted; without one the checks of that are skipped (repeatable)")
	f.StringVar(&a.record, "record", "", "write what the cloud answers to a process plugin into this new folder, without secrets, for those who keep the simulator of that cloud")
	f.StringVar(&a.replay, "replay", "", "a folder that --record has written at a real account: with the settings of a simulator, say where its answers differ from those")
	f.StringVar(&a.subject.Spec.InstanceType, "instance-type", "", "type of the instances (default: the provider's)")
	f.StringVar(&a.subject.Spec.Image, "image", "", "image of the instances (default: the provider's)")
	f.Int64Var(&a.subject.Spec.VCPUs, "vcpus", 0, "virtual CPUs of the instances (default: the provider's)")
	f.Int64Var(&a.subject.Spec.Memory, "memory", 0, "memory of the instances in MiB (default: the provider's)")
	f.StringToStringVar(&a.subject.Tags, "tag", nil, "a tag for all instances as KEY=VALUE, besides those of the checks (repeatable)")
	f.Int64Var(&a.subject.Disk.Bytes, "disk-size", 0, "size of the disks in bytes, the least that the cloud has (default 1 GiB)")
	f.StringVar(&a.subject.Disk.Type, "disk-type", "", "type of the disks (default: the provider's)")
	f.StringVar(&a.subject.Disk.Zone, "disk-zone", "", "zone of the disks, which is that of the instances (default: the provider's)")
	f.IntVar(&a.subject.Parallel, "parallel", 0, "instances at a time, at least 2 (default 8, with --slow 3)")
	f.BoolVar(&a.subject.Slow, "slow", false, "creating takes more than a few seconds: wait longer, make fewer")
	f.DurationVar(&a.subject.Limits.Call, "call-timeout", 0, "the longest that a call may take (default 1m, with --slow 10m)")
	f.DurationVar(&a.subject.Limits.Settle, "settle-timeout", 0, "the longest until lists show what was done (default 30s, with --slow 5m)")
	cmd.MarkFlagFilename("plugin")
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
	report, err := checkreport.Open(checkreport.Options{Format: a.Format, JUnit: a.JUnit, Verbose: a.Verbose, Stdout: stdout, Stderr: a.stderr})
	if err != nil {
		return err
	}
	stop, err := a.startRecorder()
	if err != nil {
		return errors.Join(err, report.Abandon())
	}
	defer stop()
	subjects, err := a.open(ctx)
	if err != nil {
		return errors.Join(program.UsageError(err), report.Abandon())
	}
	results := conformance.ExecuteWith(ctx, conformance.Options{Started: report.Started, Ended: report.Ended}, checks, subjects.open)
	return errors.Join(report.End(subjects.name, results), subjects.close(), a.compare(stdout))
}

// chosen validates the flags that need no provider.
func (a *app) chosen() ([]conformance.Check, error) {
	switch {
	case a.List && (a.plugin != "" || a.endpoint != ""):
		return nil, program.Usagef("--list needs no provider: leave out --plugin and --endpoint")
	case !a.List && (a.plugin == "") == (a.endpoint == ""):
		return nil, program.Usagef("name the provider with one of --plugin FILE and --endpoint unix:///PATH; see provider-check --help")
	case (a.record != "" || a.replay != "") && a.plugin == "":
		return nil, program.Usagef("--record and --replay need --plugin FILE: a provider that runs already does not take the way through here")
	case a.record != "" && a.replay != "":
		return nil, program.Usagef("--record is for a real account and --replay for a simulator: not both")
	case a.subject.Parallel < 0 || a.subject.Parallel == 1:
		return nil, program.Usagef("--parallel %d: at least 2, since some checks need two instances", a.subject.Parallel)
	case a.Timeout < 0 || a.subject.Limits.Call < 0 || a.subject.Limits.Settle < 0:
		return nil, program.Usagef("--timeout, --call-timeout and --settle-timeout must not be negative")
	case a.subject.Spec.VCPUs < 0 || a.subject.Spec.Memory < 0:
		return nil, program.Usagef("--vcpus and --memory must not be negative")
	case a.subject.Disk.Bytes < 0:
		return nil, program.Usagef("--disk-size must not be negative")
	}
	return a.Choose("provider-check")
}

// startRecorder serves the proxy of --record and --replay, if one of them is
// asked for.
func (a *app) startRecorder() (stop func(), err error) {
	stop, a.records = func() {}, a.record
	if a.replay != "" {
		if a.known, err = record.Read(a.replay); err != nil {
			return nil, program.Usagef("--replay: %w", err)
		}
		folder, err := os.MkdirTemp("", "provider-check-")
		if err != nil {
			return nil, err
		}
		stop, a.records = func() { os.RemoveAll(folder) }, filepath.Join(folder, "records")
	}
	if a.records == "" {
		return stop, nil
	}
	if a.recorder, err = record.Start(a.records, nil); err != nil {
		stop()
		return nil, program.Usagef("--record: %w", err)
	}
	remove := stop
	return func() { a.recorder.Close(); remove() }, nil
}

// compare returns where the simulator that was just asked differs from the cloud.
func (a *app) compare(to io.Writer) error {
	if a.replay == "" {
		return nil
	}
	now, err := record.Read(a.records)
	if err != nil {
		return fmt.Errorf("--replay: nothing was asked of the simulator: %w", err)
	}
	differences := record.Compare(a.known, now)
	for _, line := range differences {
		fmt.Fprintln(to, "differs  "+line)
	}
	if len(differences) > 0 {
		return fmt.Errorf("--replay: the simulator differs from the cloud in %d places", len(differences))
	}
	return nil
}
