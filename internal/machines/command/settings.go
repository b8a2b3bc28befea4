// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/machines/docker"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider"
)

// settings are the flags. Their names are those of Cluster API's own managers,
// so that one set of arguments fits all.
type settings struct {
	controllers.API
	Namespace           string        `flag:"namespace" usage:"only objects in this namespace; by default those of all"`
	WatchFilter         string        `flag:"watch-filter" usage:"only objects whose label cluster.x-k8s.io/watch-filter has this value"`
	LeaderElect         bool          `flag:"leader-elect" usage:"of several processes only one acts"`
	Lease               time.Duration `flag:"leader-elect-lease-duration" default:"15s" min:"1ns" usage:"how long others wait for a leader that does not renew its lease"`
	Renew               time.Duration `flag:"leader-elect-renew-deadline" default:"10s" min:"1ns" usage:"how long a leader tries to renew its lease before it gives up"`
	Retry               time.Duration `flag:"leader-elect-retry-period" default:"2s" min:"1ns" usage:"time between two attempts to get or renew the lease"`
	LeaderNamespace     string        `flag:"leader-elect-namespace" env:"POD_NAMESPACE" usage:"namespace of the lease; the Secrets of --more-providers are in that of the variable"`
	WebhookPort         int           `flag:"webhook-port" default:"9443" min:"0" max:"65535" usage:"port of the webhooks; 0: none are served"`
	WebhookCertDir      string        `flag:"webhook-cert-dir" default:"/tmp/k8s-webhook-server/serving-certs" usage:"folder with tls.crt and tls.key of the webhooks"`
	HealthAddress       string        `flag:"health-addr" default:":9440" usage:"address of /healthz and /readyz; 0: none"`
	DiagnosticsAddress  string        `flag:"diagnostics-address" default:":8443" usage:"address of /metrics, by TLS and for those whom the API server lets read it; 0: none"`
	InsecureDiagnostics bool          `flag:"insecure-diagnostics" usage:"serve --diagnostics-address without TLS, to everybody"`
	ProfilerAddress     string        `flag:"profiler-address" usage:"address of Go's profiler; by default none"`
	SyncPeriod          time.Duration `flag:"sync-period" default:"10m" min:"1ns" usage:"least time after which every object is looked at again though it did not change"`
	QPS                 rate          `flag:"kube-api-qps" default:"100" usage:"requests per second to the API server of the management cluster"`
	Burst               int           `flag:"kube-api-burst" default:"200" min:"1" usage:"requests at once beyond --kube-api-qps"`
	Gates               gates         `flag:"feature-gates" default:"MachinePool=true" usage:"NAME=true|false,… of Cluster API's feature gates; MachinePool switches DockerMachinePools"`
	CacheQPS            string        `flag:"clustercache-client-qps" usage:"accepted, without effect: workload clusters are not connected to"`
	CacheBurst          string        `flag:"clustercache-client-burst" usage:"accepted, without effect: workload clusters are not connected to"`

	DockerClusters     int `flag:"dockercluster-concurrency" default:"10" min:"1" usage:"objects of this kind that are worked on at the same time"`
	DockerMachines     int `flag:"dockermachine-concurrency" default:"10" min:"1" usage:"objects of this kind that are worked on at the same time"`
	DockerMachinePools int `flag:"dockermachinepool-concurrency" default:"10" min:"1" usage:"objects of this kind that are worked on at the same time"`
	OutriggerClusters  int `flag:"outriggercluster-concurrency" default:"10" min:"1" usage:"objects of this kind that are worked on at the same time"`
	OutriggerMachines  int `flag:"outriggermachine-concurrency" default:"10" min:"1" usage:"objects of this kind that are worked on at the same time"`

	Provider      string        `flag:"provider" env:"CLOUD_PROVIDER" usage:"provider of the Outrigger kinds, by its name; its settings come from its environment variables"`
	More          providerFiles `flag:"more-providers" usage:"other providers that an OutriggerCluster can name in spec.provider, with commas; the settings of each are the keys of the Secret provider-NAME in the manager's namespace, or lines VARIABLE=VALUE of a file: NAME=FILE"`
	DomainFiles   domainFiles   `flag:"failure-domain" usage:"NAME=FILE: failure domain of the Outrigger kinds, and a file of lines VARIABLE=VALUE that configure the provider to make its instances there; PROVIDER/NAME=FILE for one of --more-providers; may be repeated"`
	Interval      time.Duration `flag:"observe-interval" default:"1m" min:"1ns" usage:"how often a cluster's instances are listed, to see those that died"`
	CreateTimeout time.Duration `flag:"create-timeout" default:"15m" min:"1ns" usage:"how long the provider may take to create an instance"`
	Settle        time.Duration `flag:"settle-after" default:"30s" min:"1ns" usage:"how long the cloud may take to show a new instance in its lists"`
	Collect       time.Duration `flag:"collect-period" default:"5m" min:"0" usage:"time between two looks for instances and containers that lost their machine; 0: they are not looked for"`
	Grace         time.Duration `flag:"collect-grace" default:"5m" min:"1ns" usage:"how long an instance or container must have been without a machine before it is removed"`
	docker.Config

	controllers.Log
	Verbosity     string `flag:"v" means:"log-level" usage:"the same as --log-level"`
	LoggingFormat string `flag:"logging-format" means:"log-format" usage:"the same as --log-format"`
	program.VersionFlag

	// domains are DomainFiles by provider and domain.
	domains map[string]map[string]string
}

type rate float32

func (r *rate) UnmarshalText(text []byte) error {
	n, err := strconv.ParseFloat(string(text), 32)
	if err != nil || n <= 0 {
		return errors.New("want more than 0")
	}
	*r = rate(n)
	return nil
}

// knownGates are the feature gates of Cluster API's managers. They may all be named
// here: arguments are often the same for all managers.
var knownGates = []string{
	"ClusterResourceSet", "ClusterTopology", "InPlaceUpdates", "KubeadmBootstrapFormatIgnition", "MachinePool",
	"MachineSetPreflightChecks", "MachineTaintPropagation", "MachineWaitForVolumeDetachConsiderVolumeAttachments",
	"PriorityQueue", "ReconcilerRateLimiting", "RuntimeSDK",
}

type gates map[string]bool

func (g *gates) UnmarshalText(text []byte) error {
	return each(g, text, func(pair string) error {
		name, value, _ := strings.Cut(pair, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q: want %s=true or %s=false", pair, name, name)
		}
		if !slices.Contains(knownGates, name) {
			return fmt.Errorf("%q is not a feature gate; known are %s", name, strings.Join(knownGates, ", "))
		}
		(*g)[name] = on
		return nil
	})
}

// each makes the map and calls add for what is between commas.
func each[M ~map[string]V, V any](m *M, text []byte, add func(string) error) error {
	if *m == nil {
		*m = M{}
	}
	for part := range strings.SplitSeq(string(text), ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if err := add(part); err != nil {
			return err
		}
	}
	return nil
}

// domainFiles are the files of failure domains as --failure-domain names them.
type domainFiles map[string]string

func (d *domainFiles) UnmarshalText(text []byte) error {
	name, file, _ := strings.Cut(string(text), "=")
	if name == "" || file == "" {
		return errors.New("want NAME=FILE")
	}
	if *d == nil {
		*d = domainFiles{}
	}
	if (*d)[name] != "" {
		return fmt.Errorf("failure domain %q is given twice", name)
	}
	(*d)[name] = file
	return nil
}

// providerFiles are files by provider; an empty one is the provider's Secret.
type providerFiles map[string]string

func (p *providerFiles) UnmarshalText(text []byte) error {
	return each(p, text, func(one string) error {
		name, file, named := strings.Cut(one, "=")
		name = provider.Canonical(name)
		if name == "" || named && file == "" {
			return fmt.Errorf("%q: want NAME or NAME=FILE", one)
		}
		if _, twice := (*p)[name]; twice {
			return fmt.Errorf("provider %q is given twice", name)
		}
		(*p)[name] = file
		return nil
	})
}

// names returns the names of all providers, the default first.
func (s *settings) names() (all []string) {
	if s.Provider != "" {
		all = append(all, s.Provider)
	}
	return append(all, slices.Sorted(maps.Keys(s.More))...)
}

func (s *settings) domainPrefix(name string) string {
	if _, more := s.More[name]; more {
		return name + "/"
	}
	return ""
}

func (s *settings) sortDomains() error {
	s.domains = map[string]map[string]string{}
	for name, file := range s.DomainFiles {
		of := s.Provider
		if first, rest, ok := strings.Cut(name, "/"); ok {
			if _, more := s.More[provider.Canonical(first)]; more && rest != "" {
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

// check is of what no tag can express.
func (s *settings) check() error {
	s.Provider = provider.Canonical(s.Provider)
	if _, twice := s.More[s.Provider]; twice {
		return fmt.Errorf("--more-providers: %s is that of --provider (CLOUD_PROVIDER) already", s.Provider)
	}
	return s.sortDomains()
}
