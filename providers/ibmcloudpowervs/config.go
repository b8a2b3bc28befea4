// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

// Name is the provider's name on command lines.
const Name = "ibmcloud-powervs"

func init() { provider.AddCloudProvider(Name, NewManager()) }

// Config is the provider's configuration.
type Config struct {
	APIKey          config.Secret `flag:"api-key" env:"IBMCLOUD_API_KEY" required:"true" usage:"API key of the account, or of a service id in it"`
	Zone            string        `flag:"zone" env:"POWERVS_ZONE" required:"true" usage:"zone of the workspace, such as dal10"`
	ServiceInstance string        `flag:"service-instance-id" env:"POWERVS_SERVICE_INSTANCE_ID" required:"true" usage:"GUID of the workspace"`
	Network         string        `flag:"network-id" env:"POWERVS_NETWORK_ID" required:"true" usage:"id of the VMs' network"`
	Image           string        `flag:"image-id" env:"POWERVS_IMAGE_ID" required:"true" usage:"id of the pod VM image in the workspace"`
	SSHKey          string        `flag:"ssh-key" env:"POWERVS_SSH_KEY_NAME" usage:"name of an SSH key that the VMs get"`

	ProcessorType string        `flag:"proc-type" env:"POWERVS_PROCESSOR_TYPE" default:"shared" choices:"dedicated,shared,capped" usage:"how VMs get processors"`
	SystemType    string        `flag:"sys-type" env:"POWERVS_SYSTEM_TYPE" default:"s922" usage:"type of machine that VMs run on"`
	Memory        Amount        `flag:"memory" env:"POWERVS_MEMORY" default:"2" unit:"GiB" usage:"memory of a pod that asks for none"`
	Processors    Amount        `flag:"cpu" env:"POWERVS_PROCESSORS" default:"0.5" usage:"processors of a pod that asks for none"`
	BuildTimeout  time.Duration `flag:"powervs-build-timeout" env:"POWERVS_BUILD_TIMEOUT" default:"150s" usage:"how long a VM may take until it has an address; one from DHCP takes minutes"`
	// EarlierBuildTimeout is how other versions name it; zero when it is not given.
	EarlierBuildTimeout time.Duration `flag:"build-timeout" usage:"earlier name of -powervs-build-timeout"`
	UsePublicIP         bool          `flag:"use-public-ip" env:"USE_PUBLIC_IP" usage:"reach VMs by their external address; the network must be a public one"`

	Tags map[string]string `flag:"tags" env:"TAGS" usage:"user tags of the VMs besides those of the owner"`

	Endpoint    string `flag:"powervs-endpoint" env:"POWERVS_ENDPOINT" usage:"URL of the API; by default that of the zone's region"`
	IAMEndpoint string `flag:"iam-service-url" env:"IBMCLOUD_IAM_ENDPOINT" default:"https://iam.cloud.ibm.com/identity/token" usage:"URL that gives tokens for the API key"`
	CAFile      string `flag:"powervs-ca-file" env:"POWERVS_CA_FILE" usage:"certificates to trust besides the system's, as PEM"`
}

// Amount is a number above 0, with fractions: partitions have parts of a
// processor.
type Amount float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Amount) UnmarshalText(text []byte) error {
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return fmt.Errorf("%q is not a number above 0", text)
	}
	*a = Amount(v)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (a Amount) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(a), 'f', -1, 64), nil
}

// NewManager returns a manager with nothing set.
func NewManager() *config.Manager[Config] {
	return config.New(Name, func(c Config) (provider.Provider, error) { return New(c) }).NoImport()
}

var (
	zoneName = regexp.MustCompile(`^[a-z][a-z-]*[0-9]*$`)
	// token is what ids and names of the API consist of; they become parts of
	// URLs.
	token = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
)

// validate reports everything that is wrong whatever the cloud says.
func (c Config) validate() error {
	var errs []error
	if !zoneName.MatchString(c.Zone) {
		errs = append(errs, bad("zone", "%q is not a zone such as dal10", c.Zone))
	}
	for flagName, id := range map[string]string{
		"service-instance-id": c.ServiceInstance, "network-id": c.Network, "image-id": c.Image, "sys-type": c.SystemType,
	} {
		if !token.MatchString(id) {
			errs = append(errs, bad(flagName, "%q has other characters than letters, digits, '-', '_' and '.'", id))
		}
	}
	if c.APIKey == "" {
		errs = append(errs, bad("api-key", "it is required and not set"))
	}
	if c.BuildTimeout <= 0 {
		errs = append(errs, bad("powervs-build-timeout", "%v is not more than nothing", c.BuildTimeout))
	}
	for flagName, at := range map[string]string{"powervs-endpoint": c.endpoint(), "iam-service-url": c.IAMEndpoint} {
		if err := rest.CheckURL(at); err != nil {
			errs = append(errs, bad(flagName, "%v", err))
		}
	}
	for name := range c.Tags {
		if name == "" || strings.HasPrefix(name, "outrigger-") {
			errs = append(errs, bad("tags", "%q: names that begin with outrigger- are those of the owner", name))
		}
	}
	return errors.Join(errs...)
}

// endpoint returns the URL of the API.
func (c Config) endpoint() string {
	if c.Endpoint != "" {
		return strings.TrimRight(c.Endpoint, "/")
	}
	return "https://" + regionOf(c.Zone) + ".power-iaas.cloud.ibm.com"
}

// regionOf follows IBM's page "Region, data center, and resource deployment"
// of Power Virtual Server; a zone that is not there is in the region of its
// letters, as lon04 in lon.
func regionOf(zone string) string {
	letters := strings.TrimRight(zone, "0123456789")
	regions := map[string]string{
		"dal": "us-south", "us-south": "us-south", "wdc": "us-east", "us-east": "us-east", "sao": "sao", "tor": "tor", "mon": "mon",
		"eu-de-": "eu-de", "eu-de": "eu-de", "lon": "lon", "mad": "mad", "syd": "syd", "tok": "tok", "osa": "osa", "che": "che",
	}
	if region, ok := regions[letters]; ok {
		return region
	}
	return strings.TrimRight(letters, "-")
}

// The smallest partition (IBM's page "Creating a virtual server instance"):
// memory in GiB; whole processors where they are dedicated.
const (
	minMemory     = 2
	minProcessors = 0.25
)

// size is what a VM gets.
type size struct {
	system             string
	processors, memory float64 // memory in GiB
}

// typeSyntax is SYSTEM-PROCESSORSxMEMORY, such as s922-2x4: memory in GiB.
var typeSyntax = regexp.MustCompile(`^([A-Za-z0-9.]+)-([0-9]+(?:\.[0-9]+)?)x([0-9]+(?:\.[0-9]+)?)$`)

// sizeOf returns the size that a pod asks for.
func (c Config) sizeOf(spec provider.InstanceTypeSpec) (size, error) {
	s := size{c.SystemType, float64(c.Processors), float64(c.Memory)}
	switch {
	case spec.GPUs > 0 || spec.GPU != "":
		return s, fmt.Errorf("%w: Power Virtual Server has no GPUs", provider.ErrInvalidArgument)
	case spec.Arch != "" && spec.Arch != "ppc64le":
		return s, fmt.Errorf("%w: architecture %q: Power Virtual Server is ppc64le", provider.ErrInvalidArgument, spec.Arch)
	case spec.Zone != "" && spec.Zone != c.Zone:
		return s, fmt.Errorf("%w: zone %q: the workspace is in %s (-zone, POWERVS_ZONE)", provider.ErrInvalidArgument, spec.Zone, c.Zone)
	case len(spec.Volumes) > 0:
		return s, fmt.Errorf("%w: volumes cannot be attached on Power Virtual Server", provider.ErrInvalidArgument)
	case spec.MultiNic:
		return s, fmt.Errorf("%w: a second interface cannot be had on Power Virtual Server", provider.ErrInvalidArgument)
	}
	if spec.InstanceType != "" {
		return parseType(spec.InstanceType)
	}
	if spec.VCPUs > 0 {
		s.processors = float64(spec.VCPUs)
	}
	if spec.Memory > 0 {
		s.memory = math.Ceil(float64(spec.Memory) / 1024)
	}
	s.memory, s.processors = max(s.memory, minMemory), max(s.processors, minProcessors)
	if c.ProcessorType == "dedicated" {
		s.processors = math.Ceil(s.processors)
	}
	return s, nil
}

func parseType(name string) (size, error) {
	parts := typeSyntax.FindStringSubmatch(name)
	if parts == nil {
		return size{}, fmt.Errorf("%w: instance type %q: want SYSTEM-PROCESSORSxMEMORY with memory in GiB, such as s922-2x4", provider.ErrInvalidArgument, name)
	}
	processors, err1 := strconv.ParseFloat(parts[2], 64)
	memory, err2 := strconv.ParseFloat(parts[3], 64)
	if err := errors.Join(err1, err2); err != nil || processors == 0 || memory == 0 {
		return size{}, fmt.Errorf("%w: instance type %q has a size that is not a number above 0", provider.ErrInvalidArgument, name)
	}
	return size{parts[1], processors, memory}, nil
}

func (s size) String() string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	return s.system + "-" + number(s.processors) + "x" + number(s.memory)
}

// bad names a setting by its flag and its variable.
func bad(flagName, format string, args ...any) error {
	return config.Wrong[Config](flagName, format, args...)
}

func logger() *slog.Logger { return slog.With("provider", Name) }
