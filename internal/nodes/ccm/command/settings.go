// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
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
	"github.com/outrigger/outrigger/provider/config"
)

// settings are the flags: those of every cloud controller manager, and a few of
// our own, which have tags.
type settings struct {
	flags    *pflag.FlagSet
	sections cliflag.NamedFlagSets
	own      *config.Settings
	options  *options.CloudControllerManagerOptions
	logs     *logsapi.LoggingConfiguration

	// CloudProvider is the default of the library's flag.
	CloudProvider string            `env:"CLOUD_PROVIDER" usage:"the same as --cloud-provider"`
	Tags          map[string]string `flag:"instance-tags" env:"CCM_INSTANCE_TAGS" usage:"tags, as TAG=VALUE,…, that all instances of this cluster carry and no others; by default the tag outrigger-cluster of the instances of Nodes that have a providerID"`
	Labels        map[string]string `flag:"node-labels" env:"CCM_NODE_LABELS" usage:"labels, as LABEL=VALUE,…, that every Node gets when it is initialized"`
	FromTags      map[string]string `flag:"node-labels-from-tags" env:"CCM_NODE_LABELS_FROM_TAGS" usage:"labels, as TAG=LABEL,…, that a Node gets from the tags of its instance when it is initialized"`
	Format        ccm.Format        `flag:"provider-id-format" env:"CCM_PROVIDER_ID_FORMAT" default:"auto" choices:"provider,outrigger,auto" usage:"how providerIDs are written: provider (PROVIDER://ID), outrigger (outrigger://PROVIDER/ID), or auto: outrigger for machines of Cluster API, else provider; all of them are read"`
	CallTimeout   time.Duration     `flag:"provider-call-timeout" env:"CCM_PROVIDER_CALL_TIMEOUT" default:"1m" min:"1ns" usage:"how long a call to the provider may take"`
	ListAge       time.Duration     `flag:"inventory-max-age" env:"CCM_INVENTORY_MAX_AGE" default:"10s" min:"1ns" usage:"how old a list of the instances may be that answers for healthy Nodes; it is one call for all of them"`
	GoneAfter     time.Duration     `flag:"gone-after" env:"CCM_GONE_AFTER" default:"15s" min:"1ns" usage:"how far apart the first and the last look must be that did not find an instance, before its Node is deleted"`
	EmptyAfter    time.Duration     `flag:"trust-empty-inventory-after" env:"CCM_TRUST_EMPTY_INVENTORY_AFTER" default:"0s" min:"0" usage:"after what time of not finding it an instance is gone though the inventory has the instance of no other Node either; 0: never, such Nodes are deleted by hand"`
	LeftAfter     time.Duration     `flag:"load-balancer-left-after" env:"CCM_LOAD_BALANCER_LEFT_AFTER" default:"10m" min:"0" usage:"after what time without its Service a load balancer that carries --instance-tags is deleted; 0: never, and never without --instance-tags"`
	Balancer      netip.Addr        `flag:"load-balancer-address" env:"CCM_LOAD_BALANCER_ADDRESS" usage:"address of this machine at which this process itself takes the connections of Services of type LoadBalancer; for providers without load balancers"`

	version bool
	// file is what --cloud-config says, except for the own flags.
	file map[string]string
}

// Names of controllers. Their short names are aliases.
func controllerNames() []string { return app.ControllerNames(app.DefaultInitFuncConstructors) }

func newSettings() (*settings, error) {
	o, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	s := &settings{options: o, logs: logsapi.NewLoggingConfiguration(), flags: pflag.NewFlagSet(name, pflag.ContinueOnError)}
	s.defaults()
	s.own = config.Bind(s)
	s.own.Dash = "--"
	own := flag.NewFlagSet("", flag.ContinueOnError)
	s.own.AddFlags(own)
	s.sections.FlagSet("Outrigger").AddGoFlagSet(own)
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
func (s *settings) defaults() {
	o := s.options
	o.NodeController.ConcurrentNodeSyncs = 10
	o.NodeController.ConcurrentNodeStatusUpdates = 10
	o.Generic.ClientConnection.QPS, o.Generic.ClientConnection.Burst = 100, 200
	o.Webhook, o.WebhookServing = nil, nil // there are none
}

func (s *settings) parse(args []string, getenv func(string) string) error {
	chosen := &s.options.KubeCloudShared.CloudProvider.Name
	*chosen = provider.Canonical(getenv("CLOUD_PROVIDER"))
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
	if err := s.readFile(); err != nil {
		return program.UsageError(err)
	}
	if _, ok := s.file["CLOUD_PROVIDER"]; ok {
		return program.Usagef("--cloud-config: CLOUD_PROVIDER is not for the file: set the variable of the process, or --cloud-provider")
	}
	// The file wins over the environment.
	s.own.LoadEnv(func(name string) string {
		if text, inFile := s.file[name]; inFile {
			return text
		}
		return getenv(name)
	})
	for f := range s.own.All() { // what is left of the file is the provider's
		delete(s.file, f.Env)
	}
	return program.UsageError(errors.Join(s.own.Err(), s.check()))
}

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

// check is of what no tag of ours can express.
func (s *settings) check() error {
	var errs []error
	shared := s.options.KubeCloudShared
	if shared.CloudProvider.Name == "" {
		errs = append(errs, errors.New("--cloud-provider (CLOUD_PROVIDER) is not set: which provider has the instances?"))
	} else if err := s.options.Validate(controllerNames(), app.ControllersDisabledByDefault.List(), names.CCMControllerAliases(), nil, nil); err != nil {
		errs = append(errs, err)
	}
	if shared.NodeMonitorPeriod.Duration <= 0 {
		errs = append(errs, fmt.Errorf("--node-monitor-period %s: want more than 0", shared.NodeMonitorPeriod.Duration))
	}
	if s.Balancer.IsUnspecified() {
		errs = append(errs, fmt.Errorf("--load-balancer-address %s: want one that clients can connect to; it becomes that of Services", s.Balancer))
	}
	if s.options.Generic.LeaderMigration.Enabled {
		errs = append(errs, errors.New("--enable-leader-migration: there is no cloud provider in kube-controller-manager any more to migrate from"))
	}
	return errors.Join(errs...)
}

const introduction = `cloud-controller-manager tells a cluster what its Nodes are in the cloud. Kubelets that
run with --cloud-provider=external give their Node a taint; this program finds the Node's
instance at the provider, writes providerID, addresses, zone, region and type, and takes
the taint away. It taints Nodes whose instance is stopped, and deletes those whose
instance is gone: never on an error, nor on an inventory that knows none of the Nodes.

The provider's settings are its environment variables, or lines VARIABLE=VALUE in the
file that --cloud-config names; none is a flag. By hand, against a cluster:

  LIBVIRT_URI=qemu:///system cloud-controller-manager --cloud-provider libvirt \
    --instance-tags outrigger-cluster=NAME --kubeconfig ~/.kube/config --leader-elect=false

While a cluster is bootstrapped only Nodes are initialized:

  cloud-controller-manager --cloud-provider libvirt --controllers cloud-node …

`

func (s *settings) help(w io.Writer) {
	fmt.Fprint(w, introduction)
	if built := provider.List(); len(built) > 0 {
		fmt.Fprintf(w, "Providers that are built in: %s. Others are plugins.\n", strings.Join(built, ", "))
	}
	cliflag.PrintSections(w, s.sections, 0)
	asked := s.options.KubeCloudShared.CloudProvider.Name
	if c, ok := provider.Get(asked).(config.Configurable); ok {
		fmt.Fprintf(w, "\nVariables of provider %s (its flags are other programs'):\n\n", asked)
		c.Schema().WriteHelp(w)
	}
}

// standing returns settings that do not depend on arguments or environment.
func standing() *settings {
	s, err := newSettings()
	if err != nil {
		panic(err) // the library's own defaults
	}
	return s
}

// Settings returns the settings that other cloud controller managers do not have.
func Settings() *config.Settings { return standing().own }

// OtherDefaults returns the flags whose default differs from that of
// k8s.io/cloud-provider, each with that default and ours.
func OtherDefaults() [][3]string {
	o, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		panic(err) // as above
	}
	ours := standing()
	var all [][3]string
	sections := o.Flags(controllerNames(), app.ControllersDisabledByDefault.List(), names.CCMControllerAliases(), nil, nil)
	for _, section := range sections.Order {
		sections.FlagSets[section].VisitAll(func(f *pflag.Flag) {
			if our := ours.flags.Lookup(f.Name); our != nil && our.DefValue != f.DefValue {
				all = append(all, [3]string{f.Name, f.DefValue, our.DefValue})
			}
		})
	}
	return all
}
