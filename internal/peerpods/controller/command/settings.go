// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/outrigger/outrigger/internal/logflags"
	"github.com/outrigger/outrigger/internal/peerpods/controller"
	"github.com/outrigger/outrigger/internal/program"
)

// settings are the flags and variables.
type settings struct {
	flags          *flag.FlagSet
	metricsAddress string
	healthAddress  string
	leaderElect    bool
	namespace      string
	cluster        string
	log            logflags.Log
	version        bool

	workers              int
	period, grace, adopt time.Duration
	settle               time.Duration
}

func newSettings() *settings {
	s := &settings{flags: flag.NewFlagSet("peerpod-ctrl", flag.ContinueOnError)}
	f := s.flags
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	config.RegisterFlags(f)
	f.StringVar(&s.metricsAddress, "metrics-bind-address", ":8080", "`address` of the metrics; 0: none")
	f.StringVar(&s.healthAddress, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz; 0: none")
	f.BoolVar(&s.leaderElect, "leader-elect", false, "of several processes only one acts")
	f.IntVar(&s.workers, "workers", 16, "PeerPods that are worked on at the same time")
	f.DurationVar(&s.period, "sweep-period", time.Minute, "time between two comparisons of clouds and PeerPods")
	f.DurationVar(&s.grace, "sweep-grace", 5*time.Minute, "how old an instance without a PeerPod must be, and for how long it must have been seen so, before it is deleted")
	f.DurationVar(&s.adopt, "adopt-after", 2*time.Minute, "how old a PeerPod without an instance must be before the one found in the cloud is noted")
	f.DurationVar(&s.settle, "settle-after", time.Minute, "how long a deleted PeerPod without an instance is kept, for one still in the making")
	s.log.Add(f)
	f.BoolVar(&s.version, "version", false, "print the version")
	// Those of earlier versions, which manifests may still have.
	f.String("zap-stacktrace-level", "", "accepted, without effect")
	f.String("zap-time-encoding", "", "accepted, without effect")
	return s
}

func (s *settings) parse(args []string, getenv func(string) string) error {
	if err := s.flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return program.Usagef("%w; all flags: peerpod-ctrl -h", err)
	}
	if s.version {
		return nil
	}
	s.namespace, s.cluster = getenv("PEERPODS_NAMESPACE"), getenv("CLUSTER_ID")
	return s.check()
}

func (s *settings) check() error {
	var errs []error
	if s.flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q; all flags: peerpod-ctrl -h", s.flags.Arg(0)))
	}
	if s.namespace == "" {
		errs = append(errs, fmt.Errorf("PEERPODS_NAMESPACE is not set: set it to the namespace of ConfigMap %s and Secret %s", controller.ConfigMapName, controller.SecretName))
	}
	if s.workers < 1 {
		errs = append(errs, fmt.Errorf("-workers %d: want 1 or more", s.workers))
	}
	for name, d := range map[string]time.Duration{"sweep-period": s.period, "sweep-grace": s.grace, "adopt-after": s.adopt, "settle-after": s.settle} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("-%s %s: want more than 0", name, d))
		}
	}
	if len(errs) > 0 {
		return program.UsageError(errors.Join(errs...))
	}
	return nil
}

func (s *settings) apply(o *controller.Options) {
	o.Namespace, o.Workers = s.namespace, s.workers
	o.Period, o.Grace, o.Adopt, o.Settle = s.period, s.grace, s.adopt, s.settle
}

// Flags returns the program's flags.
func Flags() *flag.FlagSet { return newSettings().flags }

// Variables returns the environment variables of the program, each with its meaning.
func Variables() [][2]string {
	return [][2]string{
		{"PEERPODS_NAMESPACE", "namespace of ConfigMap " + controller.ConfigMapName + " and Secret " + controller.SecretName + ", and of the lease (required)"},
		{"CLUSTER_ID", "identity of this cluster in owner tags; default: key CLUSTER_ID of the ConfigMap, else the UID of namespace kube-system"},
		{"KUBECONFIG", "the same as -kubeconfig"},
	}
}

func (s *settings) help(w io.Writer) {
	fmt.Fprint(w, "peerpod-ctrl removes the instances of deleted PeerPods, and those that lost their PeerPod.\n\nUsage: peerpod-ctrl [flags]\n\nEnvironment:\n")
	for _, v := range Variables() {
		fmt.Fprintf(w, "  %-18s  %s\n", v[0], v[1])
	}
	fmt.Fprint(w, "\nFlags:\n")
	s.flags.SetOutput(w)
	s.flags.PrintDefaults()
	s.flags.SetOutput(io.Discard)
}
