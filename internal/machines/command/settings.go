// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/outrigger/outrigger/internal/logflags"
	"github.com/outrigger/outrigger/internal/machines/docker"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider"
)

// settings are the flags. Their names are those of Cluster API's own managers,
// so that one set of arguments fits all.
type settings struct {
	flags *flag.FlagSet

	namespace, watchFilter string
	leaderElect            bool
	lease, renew, retry    time.Duration
	leaderNamespace        string
	webhookPort            int
	webhookCertDir         string
	healthAddress          string
	diagnosticsAddress     string
	insecureDiagnostics    bool
	profilerAddress        string
	syncPeriod             time.Duration
	qps                    float64
	burst                  int
	gates                  map[string]bool
	concurrency            map[string]*int

	provider string
	more     map[string]string // file by provider; empty: its Secret
	// domainFiles are the files of failure domains as --failure-domain names them, and
	// domains the same by provider and domain.
	domainFiles    map[string]string
	domains        map[string]map[string]string
	interval       time.Duration
	createTimeout  time.Duration
	settle         time.Duration
	collect, grace time.Duration
	docker         docker.Config

	log     logflags.Log
	version bool
}

// gates are the feature gates of Cluster API's managers. They may all be named
// here: arguments are often the same for all managers.
var gates = []string{
	"ClusterResourceSet", "ClusterTopology", "InPlaceUpdates", "KubeadmBootstrapFormatIgnition", "MachinePool",
	"MachineSetPreflightChecks", "MachineTaintPropagation", "MachineWaitForVolumeDetachConsiderVolumeAttachments",
	"PriorityQueue", "ReconcilerRateLimiting", "RuntimeSDK",
}

func newSettings(getenv func(string) string) *settings {
	s := &settings{
		flags: flag.NewFlagSet("capi-manager", flag.ContinueOnError),
		gates: map[string]bool{"MachinePool": true}, concurrency: map[string]*int{}, more: map[string]string{}, domainFiles: map[string]string{},
		leaderNamespace: getenv("POD_NAMESPACE"),
	}
	s.flags.SetOutput(io.Discard)
	s.flags.Usage = func() {}
	config.RegisterFlags(s.flags)
	s.managerFlags()
	s.backendFlags(getenv)
	s.logFlags()
	s.flags.BoolVar(&s.version, "version", false, "print the version")
	return s
}

func (s *settings) managerFlags() {
	f := s.flags
	f.StringVar(&s.namespace, "namespace", "", "only objects in this `namespace`; by default those of all")
	f.StringVar(&s.watchFilter, "watch-filter", "", "only objects whose label cluster.x-k8s.io/watch-filter has this `value`")
	f.BoolVar(&s.leaderElect, "leader-elect", false, "of several processes only one acts")
	f.DurationVar(&s.lease, "leader-elect-lease-duration", 15*time.Second, "how long others wait for a leader that does not renew its lease")
	f.DurationVar(&s.renew, "leader-elect-renew-deadline", 10*time.Second, "how long a leader tries to renew its lease before it gives up")
	f.DurationVar(&s.retry, "leader-elect-retry-period", 2*time.Second, "time between two attempts to get or renew the lease")
	f.StringVar(&s.leaderNamespace, "leader-elect-namespace", s.leaderNamespace, "`namespace` of the lease (POD_NAMESPACE)")
	f.IntVar(&s.webhookPort, "webhook-port", 9443, "`port` of the webhooks; 0: none are served")
	f.StringVar(&s.webhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs", "`folder` with tls.crt and tls.key of the webhooks")
	f.StringVar(&s.healthAddress, "health-addr", ":9440", "`address` of /healthz and /readyz; 0: none")
	f.StringVar(&s.diagnosticsAddress, "diagnostics-address", ":8443", "`address` of /metrics, by TLS and for those whom the API server lets read it; 0: none")
	f.BoolVar(&s.insecureDiagnostics, "insecure-diagnostics", false, "serve --diagnostics-address without TLS, to everybody")
	f.StringVar(&s.profilerAddress, "profiler-address", "", "`address` of Go's profiler; by default none")
	f.DurationVar(&s.syncPeriod, "sync-period", 10*time.Minute, "least time after which every object is looked at again though it did not change")
	f.Float64Var(&s.qps, "kube-api-qps", 100, "requests per second to the API server of the management cluster")
	f.IntVar(&s.burst, "kube-api-burst", 200, "requests at once beyond --kube-api-qps")
	f.Func("feature-gates", "`NAME=true|false,…` of Cluster API's feature gates; MachinePool switches DockerMachinePools (default MachinePool=true)", s.setGates)
	for _, ignored := range []string{"clustercache-client-qps", "clustercache-client-burst"} {
		f.Float64(ignored, 0, "accepted, without effect: workload clusters are not connected to")
	}
	for _, kind := range []string{"dockercluster", "dockermachine", "dockermachinepool", "outriggercluster", "outriggermachine"} {
		s.concurrency[kind] = f.Int(kind+"-concurrency", 10, "objects of this kind that are worked on at the same time")
	}
}

func (s *settings) backendFlags(getenv func(string) string) {
	f := s.flags
	f.StringVar(&s.provider, "provider", provider.Canonical(getenv("CLOUD_PROVIDER")), "provider of the Outrigger kinds, by its `name`; its settings come from its environment variables (CLOUD_PROVIDER)")
	f.Func("more-providers", "other `providers` that an OutriggerCluster can name in spec.provider, with commas; the settings of each are the keys of the Secret provider-NAME in the manager's namespace, or lines VARIABLE=VALUE of a file: NAME=FILE", s.setMore)
	f.Func("failure-domain", "`NAME=FILE`: failure domain of the Outrigger kinds, and a file of lines VARIABLE=VALUE that configure the provider to make its instances there; PROVIDER/NAME=FILE for one of --more-providers; may be repeated", s.setDomain)
	f.DurationVar(&s.interval, "observe-interval", time.Minute, "how often a cluster's instances are listed, to see those that died")
	f.DurationVar(&s.createTimeout, "create-timeout", 15*time.Minute, "how long the provider may take to create an instance")
	f.DurationVar(&s.settle, "settle-after", 30*time.Second, "how long the cloud may take to show a new instance in its lists")
	f.DurationVar(&s.collect, "collect-period", 5*time.Minute, "time between two looks for instances and containers that lost their machine; 0: they are not looked for")
	f.DurationVar(&s.grace, "collect-grace", 5*time.Minute, "how long an instance or container must have been without a machine before it is removed")
	s.docker.AddFlags(f, getenv)
}

// logFlags has those of all managers of Cluster API.
func (s *settings) logFlags() {
	s.log.Add(s.flags)
	s.log.AddLevel(s.flags, "v")
	s.log.AddFormat(s.flags, "logging-format")
}

func (s *settings) setGates(text string) error {
	for _, pair := range strings.Split(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q: want %s=true or %s=false", pair, name, name)
		}
		if !slices.Contains(gates, name) {
			return fmt.Errorf("%q is not a feature gate; known are %s", name, strings.Join(gates, ", "))
		}
		s.gates[name] = on
	}
	return nil
}

func (s *settings) setDomain(text string) error {
	name, file, ok := strings.Cut(text, "=")
	if !ok || name == "" || file == "" {
		return errors.New("want NAME=FILE")
	}
	if s.domainFiles[name] != "" {
		return fmt.Errorf("failure domain %q is given twice", name)
	}
	s.domainFiles[name] = file
	return nil
}

func (s *settings) setMore(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		name, file, named := strings.Cut(one, "=")
		name = provider.Canonical(name)
		if name == "" || named && file == "" {
			return fmt.Errorf("%q: want NAME or NAME=FILE", one)
		}
		if _, twice := s.more[name]; twice {
			return fmt.Errorf("provider %q is given twice", name)
		}
		s.more[name] = file
	}
	return nil
}

// names returns the names of all providers, the default first.
func (s *settings) names() (all []string) {
	if s.provider != "" {
		all = append(all, s.provider)
	}
	return append(all, slices.Sorted(maps.Keys(s.more))...)
}

// domainPrefix returns the prefix of a provider's domains in --failure-domain.
func (s *settings) domainPrefix(name string) string {
	if _, more := s.more[name]; more {
		return name + "/"
	}
	return ""
}

// sortDomains assigns each failure domain to its provider.
func (s *settings) sortDomains() error {
	s.domains = map[string]map[string]string{}
	for name, file := range s.domainFiles {
		of := s.provider
		if first, rest, ok := strings.Cut(name, "/"); ok {
			if _, more := s.more[provider.Canonical(first)]; more && rest != "" {
				of, name = provider.Canonical(first), rest
			}
		}
		if of == "" {
			return fmt.Errorf("--failure-domain %s is of the Outrigger kinds: it needs --provider (CLOUD_PROVIDER), or one of --more-providers before it, as in PROVIDER/%[1]s", name)
		}
		if s.domains[of] == nil {
			s.domains[of] = map[string]string{}
		}
		s.domains[of][name] = file
	}
	return nil
}

func (s *settings) parse(args []string) error {
	if err := s.flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return program.Usagef("%w; all flags: capi-manager --help", err)
	}
	if s.version {
		return nil
	}
	return s.check()
}

func (s *settings) check() error {
	var errs []error
	if s.flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q; all flags: capi-manager --help", s.flags.Arg(0)))
	}
	for kind, n := range s.concurrency {
		if *n < 1 {
			errs = append(errs, fmt.Errorf("--%s-concurrency %d: want 1 or more", kind, *n))
		}
	}
	for name, d := range map[string]time.Duration{
		"observe-interval": s.interval, "create-timeout": s.createTimeout, "settle-after": s.settle, "collect-grace": s.grace, "sync-period": s.syncPeriod,
		"leader-elect-lease-duration": s.lease, "leader-elect-renew-deadline": s.renew, "leader-elect-retry-period": s.retry,
	} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("--%s %s: want more than 0", name, d))
		}
	}
	if s.collect < 0 {
		errs = append(errs, fmt.Errorf("--collect-period %s: want 0 or more", s.collect))
	}
	if s.webhookPort < 0 || s.webhookPort > 65535 {
		errs = append(errs, fmt.Errorf("--webhook-port %d: want 0 to 65535", s.webhookPort))
	}
	if s.qps <= 0 || s.burst < 1 {
		errs = append(errs, fmt.Errorf("--kube-api-qps %v and --kube-api-burst %d: want more than 0", s.qps, s.burst))
	}
	if _, twice := s.more[s.provider]; twice {
		errs = append(errs, fmt.Errorf("--more-providers: %s is that of --provider (CLOUD_PROVIDER) already", s.provider))
	}
	if err := s.sortDomains(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return program.UsageError(errors.Join(errs...))
	}
	return nil
}

// Flags returns the program's flags.
func Flags() *flag.FlagSet { return newSettings(func(string) string { return "" }).flags }
