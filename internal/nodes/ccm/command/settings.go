// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/outrigger/outrigger/internal/nodes/ccm"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/variables"
	"github.com/outrigger/outrigger/provider"
)

// settings are the flags: those of every cloud controller manager, and a few of
// our own.
type settings struct {
	flags    *pflag.FlagSet
	sections cliflag.NamedFlagSets
	own      *pflag.FlagSet
	options  *options.CloudControllerManagerOptions
	logs     *logsapi.LoggingConfiguration

	tags, labels, fromTags map[string]string
	format                 string
	callTimeout, listAge   time.Duration
	goneAfter, emptyAfter  time.Duration
	leftAfter              time.Duration
	balancer               string
	version                bool

	// file is what --cloud-config says, except for the own flags.
	file map[string]string
}

// Names of controllers. Their short names are aliases.
func controllerNames() []string { return app.ControllerNames(app.DefaultInitFuncConstructors) }

func newSettings(getenv func(string) string) (*settings, error) {
	o, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	s := &settings{options: o, logs: logsapi.NewLoggingConfiguration(), flags: pflag.NewFlagSet(name, pflag.ContinueOnError)}
	s.defaults(getenv)
	s.own = s.sections.FlagSet("Outrigger")
	s.ownFlags()
	standard := o.Flags(controllerNames(), app.ControllersDisabledByDefault.List(), names.CCMControllerAliases(), nil, nil)
	for _, section := range standard.Order {
		s.sections.FlagSet(section).AddFlagSet(standard.FlagSets[section])
	}
	global := s.sections.FlagSet("global")
	logsapi.AddFlags(s.logs, global)
	globalflag.AddGlobalFlags(global, name, logs.SkipLoggingConfigurationFlags())
	global.BoolVar(&s.version, "version", false, "print the version")
	for _, section := range s.sections.Order {
		s.flags.AddFlagSet(s.sections.FlagSets[section])
	}
	s.flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	s.flags.Usage = func() {}
	return s, nil
}

// defaults differ from those of k8s.io/cloud-provider where a cluster of some
// hundred Nodes would wait for minutes.
func (s *settings) defaults(getenv func(string) string) {
	o := s.options
	o.KubeCloudShared.CloudProvider.Name = provider.Canonical(getenv("CLOUD_PROVIDER"))
	o.NodeController.ConcurrentNodeSyncs = 10
	o.NodeController.ConcurrentNodeStatusUpdates = 10
	o.Generic.ClientConnection.QPS, o.Generic.ClientConnection.Burst = 100, 200
	o.Webhook, o.WebhookServing = nil, nil // there are none
}

func (s *settings) ownFlags() {
	f := s.own
	f.StringToStringVar(&s.tags, "instance-tags", nil, "tags, as TAG=VALUE,…, that all instances of this cluster carry and no others; by default the tag "+provider.TagCluster+" of the instances of Nodes that have a providerID")
	f.StringToStringVar(&s.labels, "node-labels", nil, "labels, as LABEL=VALUE,…, that every Node gets when it is initialized")
	f.StringToStringVar(&s.fromTags, "node-labels-from-tags", nil, "labels, as TAG=LABEL,…, that a Node gets from the tags of its instance when it is initialized")
	f.StringVar(&s.format, "provider-id-format", string(ccm.FormatAuto), "how providerIDs are written: provider (<provider>://<id>), outrigger (outrigger://<provider>/<id>), or auto: outrigger for machines of Cluster API, else provider; all of them are read")
	f.DurationVar(&s.callTimeout, "provider-call-timeout", time.Minute, "how long a call to the provider may take")
	f.DurationVar(&s.listAge, "inventory-max-age", 10*time.Second, "how old a list of the instances may be that answers for healthy Nodes; it is one call for all of them")
	f.DurationVar(&s.goneAfter, "gone-after", 15*time.Second, "how far apart the first and the last look must be that did not find an instance, before its Node is deleted")
	f.DurationVar(&s.emptyAfter, "trust-empty-inventory-after", 0, "after what time of not finding it an instance is gone though the inventory has the instance of no other Node either; 0: never, such Nodes are deleted by hand")
	f.DurationVar(&s.leftAfter, "load-balancer-left-after", 10*time.Minute, "after what time without its Service a load balancer that carries --instance-tags is deleted; 0: never, and never without --instance-tags")
	f.StringVar(&s.balancer, "load-balancer-address", "", "address of this machine at which this process itself takes the connections of Services of type LoadBalancer; for providers without load balancers")
}

// variable returns the name of an own flag in the environment and in the file of
// --cloud-config.
func variable(flag string) string {
	return "CCM_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func (s *settings) parse(args []string, getenv func(string) string) error {
	if err := s.flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return err
	} else if err != nil {
		return program.Usagef("%w; all flags: %s --help", err, name)
	}
	if s.version {
		return nil
	}
	if help, err := s.flags.GetBool("help"); err == nil && help { // a flag like others to the library
		return pflag.ErrHelp
	}
	if s.flags.NArg() > 0 {
		return program.Usagef("unexpected argument %q; all flags: %s --help", s.flags.Arg(0), name)
	}
	if err := errors.Join(s.readFile(), s.fill(getenv)); err != nil {
		return program.UsageError(err)
	}
	return s.check()
}

// readFile reads --cloud-config.
func (s *settings) readFile() (err error) {
	path := s.options.KubeCloudShared.CloudProvider.CloudConfigFile
	if path == "" {
		return nil
	}
	if s.file, err = variables.Read(path); err != nil {
		return fmt.Errorf("--cloud-config: %w", err)
	}
	return nil
}

// fill gives own flags that are not set their value from the file, or else from
// the environment.
func (s *settings) fill(getenv func(string) string) error {
	var errs []error
	s.own.VisitAll(func(f *pflag.Flag) {
		key := variable(f.Name)
		value, inFile := s.file[key]
		if delete(s.file, key); !inFile {
			value = getenv(key)
		}
		if value == "" || f.Changed {
			return
		}
		if err := s.flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("%s (--%s): %w", key, f.Name, err))
		}
	})
	return errors.Join(errs...)
}

func (s *settings) check() error {
	var errs []error
	if s.options.KubeCloudShared.CloudProvider.Name == "" {
		errs = append(errs, errors.New("--cloud-provider (CLOUD_PROVIDER) is not set: which provider has the instances?"))
	} else if err := s.options.Validate(controllerNames(), app.ControllersDisabledByDefault.List(), names.CCMControllerAliases(), nil, nil); err != nil {
		errs = append(errs, err)
	}
	if _, err := ccm.ParseFormat(s.format); err != nil {
		errs = append(errs, fmt.Errorf("--provider-id-format: %w", err))
	}
	for flag, d := range map[string]time.Duration{"provider-call-timeout": s.callTimeout, "gone-after": s.goneAfter, "inventory-max-age": s.listAge, "node-monitor-period": s.options.KubeCloudShared.NodeMonitorPeriod.Duration} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("--%s %s: want more than 0", flag, d))
		}
	}
	if s.leftAfter < 0 {
		errs = append(errs, fmt.Errorf("--load-balancer-left-after %s: want 0 or more", s.leftAfter))
	}
	if s.emptyAfter < 0 {
		errs = append(errs, fmt.Errorf("--trust-empty-inventory-after %s: want 0 or more", s.emptyAfter))
	}
	if addr, err := netip.ParseAddr(s.balancer); s.balancer != "" && err != nil {
		errs = append(errs, fmt.Errorf("--load-balancer-address: %w", err))
	} else if addr.IsUnspecified() {
		errs = append(errs, fmt.Errorf("--load-balancer-address %s: want one that clients can connect to; it becomes that of Services", addr))
	}
	if s.options.Generic.LeaderMigration.Enabled {
		errs = append(errs, errors.New("--enable-leader-migration: there is no cloud provider in kube-controller-manager any more to migrate from"))
	}
	if len(errs) > 0 {
		return program.UsageError(errors.Join(errs...))
	}
	return nil
}
