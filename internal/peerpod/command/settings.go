// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/outrigger/outrigger/internal/peerpod/controller"
)

// settings are the flags and variables.
type settings struct {
	flags          *flag.FlagSet
	metricsAddress string
	healthAddress  string
	leaderElect    bool
	namespace      string
	cluster        string
	level          slog.Level
	format         string
	version        bool

	workers              int
	period, grace, adopt time.Duration
	settle               time.Duration
}

func newSettings() *settings {
	s := &settings{flags: flag.NewFlagSet("peerpod-ctrl", flag.ContinueOnError), format: "json"}
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
	f.Func("log-level", "least level that is logged: debug, info, warn or error (default info)", s.setLevel)
	f.Func("log-format", "form of log lines: json or text (default json)", s.setFormat)
	f.BoolVar(&s.version, "version", false, "print the version")
	s.zapFlags()
	return s
}

// zapFlags are those of earlier versions, whose manifests may still have them.
func (s *settings) zapFlags() {
	f := s.flags
	f.Func("zap-log-level", "same as -log-level; a number is a verbosity", s.setLevel)
	f.Func("zap-encoder", "json, or console for -log-format text", s.setFormat)
	f.BoolFunc("zap-devel", "same as -log-level debug -log-format text", func(text string) error {
		if on, err := strconv.ParseBool(text); err != nil || !on {
			return err
		}
		s.level, s.format = slog.LevelDebug, "text"
		return nil
	})
	f.String("zap-stacktrace-level", "", "accepted, without effect")
	f.String("zap-time-encoding", "", "accepted, without effect")
}

func (s *settings) setLevel(text string) error {
	if verbosity, err := strconv.Atoi(text); err == nil && verbosity > 0 {
		s.level = slog.Level(-verbosity)
		return nil
	}
	if s.level.UnmarshalText([]byte(text)) != nil {
		return errors.New("want debug, info, warn or error")
	}
	return nil
}

func (s *settings) setFormat(text string) error {
	switch text {
	case "json":
		s.format = "json"
	case "text", "console":
		s.format = "text"
	default:
		return errors.New("want json or text")
	}
	return nil
}

func (s *settings) parse(args []string, getenv func(string) string) error {
	if err := s.flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return usageError{fmt.Errorf("%w; all flags: peerpod-ctrl -h", err)}
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
		return usageError{errors.Join(errs...)}
	}
	return nil
}

func (s *settings) apply(o *controller.Options) {
	o.Namespace, o.Workers = s.namespace, s.workers
	o.Period, o.Grace, o.Adopt, o.Settle = s.period, s.grace, s.adopt, s.settle
}

func (s *settings) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.level}
	if s.format == "text" {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// Flags answers the program's flags.
func Flags() *flag.FlagSet { return newSettings().flags }

// Variables are what the program reads from its environment, each with its
// meaning.
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
