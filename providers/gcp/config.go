// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

// Name is the provider's name on command lines.
const Name = "gcp"

func init() { provider.AddCloudProvider(Name, NewManager()) }

// Config is the provider's configuration.
type Config struct {
	Credentials     config.Secret `flag:"gcp-credentials" env:"GCP_CREDENTIALS" usage:"credentials, or the path of a file with them: the JSON of a service account's key or of an external account (workload identity federation)"`
	CredentialsFile string        `flag:"gcp-credentials-file" env:"GOOGLE_APPLICATION_CREDENTIALS" usage:"file with the credentials, where -gcp-credentials is not set; read again whenever a token is due. With neither, the metadata server of the VM that this runs on gives tokens"`
	Project         string        `flag:"gcp-project-id" env:"GCP_PROJECT_ID" required:"true" usage:"project of the instances"`
	Zones           []string      `flag:"zone" env:"GCP_ZONE" required:"true" usage:"zones of the instances, in the order in which they are tried"`
	Network         string        `flag:"network" env:"GCP_NETWORK" required:"true" usage:"VPC network: a name, or projects/P/global/networks/N"`
	Subnetwork      string        `flag:"subnetwork" env:"GCP_SUBNETWORK" usage:"subnetwork: a name, or projects/P/regions/R/subnetworks/S; needed unless the network is in auto mode"`
	Image           string        `flag:"image-name" env:"PODVM_IMAGE_NAME" usage:"pod VM image: a name, or projects/P/global/images/I, or projects/P/global/images/family/F"`

	MachineType  string                 `flag:"machine-type" env:"GCP_MACHINE_TYPE" default:"e2-medium" usage:"machine type of a pod that asks for none"`
	MachineTypes instancetypes.Patterns `flag:"machine-types" env:"GCP_INSTANCE_TYPES" usage:"machine types that pods may get besides the default, such as n2d-standard-*"`
	Prices       map[string]string      `flag:"gcp-machine-prices" env:"GCP_MACHINE_PRICES" usage:"price per hour of machine types, such as n2d-standard-2=0.09: the cheapest that fits is taken. The API tells no prices; without one the smallest is taken"`
	DiskType     string                 `flag:"disk-type" env:"GCP_DISK_TYPE" default:"pd-standard" usage:"type of the root disk"`
	DiskKey      string                 `flag:"gcp-disk-kms-key" env:"GCP_DISK_KMS_KEY" usage:"key of Cloud KMS that encrypts the root disk, projects/P/locations/L/keyRings/R/cryptoKeys/K; default Google's"`
	RootDisk     int64                  `flag:"root-volume-size" env:"ROOT_VOLUME_SIZE" default:"10" unit:"GiB" min:"1" max:"65536" usage:"size of the root disk; at least that of the image"`
	Spot         bool                   `flag:"gcp-spot" env:"GCP_SPOT" usage:"make Spot VMs: cheaper, and the cloud may take them away at any time"`

	ConfidentialType string `flag:"confidential-type" env:"GCP_CONFIDENTIAL_TYPE" choices:"TDX,SEV,SEV_SNP" usage:"make confidential VMs of this technology"`
	DisableCVM       bool   `flag:"disable-cvm" env:"DISABLECVM" usage:"make ordinary VMs whatever -confidential-type says"`

	UsePublicIP         bool     `flag:"use-public-ip" env:"USE_PUBLIC_IP" usage:"give VMs an external address and reach them by it"`
	SecondaryNetwork    string   `flag:"gcp-secondary-network" env:"GCP_SECONDARY_NETWORK" usage:"VPC network, another than -network, of the second interface with an external address that pods ask for whose traffic leaves by their VM"`
	SecondarySubnetwork string   `flag:"gcp-secondary-subnetwork" env:"GCP_SECONDARY_SUBNETWORK" usage:"subnetwork of the second interface"`
	NetworkTags         []string `flag:"gcp-network-tags" env:"GCP_NETWORK_TAGS" usage:"network tags of the VMs, which firewall rules match"`

	Tags   map[string]string `flag:"tags" env:"TAGS" usage:"resource manager tags of the VMs, which must exist: names in the project, or tagKeys/1=tagValues/2"`
	Labels map[string]string `flag:"gcp-labels" env:"GCP_LABELS" usage:"labels of the VMs and their disks"`

	Endpoint        string `flag:"gcp-endpoint" env:"GCP_ENDPOINT" default:"https://compute.googleapis.com" usage:"URL of the Compute Engine API"`
	ManagerEndpoint string `flag:"gcp-resource-manager-endpoint" env:"GCP_RESOURCE_MANAGER_ENDPOINT" default:"https://cloudresourcemanager.googleapis.com" usage:"URL of the Resource Manager API, which tells permissions"`
	CAFile          string `flag:"gcp-ca-file" env:"GCP_CA_FILE" usage:"certificates to trust besides the system's, as PEM"`
}

// NewManager returns a manager with nothing set.
func NewManager() *config.Manager[Config] {
	return config.New(Name, func(c Config) (provider.Provider, error) { return New(c) }).ForImport(forImport)
}

// forImport stands in for settings of instances, which imports do not use.
func forImport(c *Config) {
	c.Zones, c.Network, c.Subnetwork = []string{"us-central1-a"}, "default", ""
}

// confidential returns the technology to use; empty for none.
func (c Config) confidential() string {
	if c.DisableCVM {
		return ""
	}
	return c.ConfidentialType
}

// Patterns of the discovery document of compute v1, anchored.
var (
	resourceName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	projectName  = regexp.MustCompile(`^(([-a-z0-9]{1,63}\.)*([a-z]([-a-z0-9]{0,61}[a-z0-9])?):)?([0-9]{1,19}|([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?))$`)
	zoneName     = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,60}[a-z0-9])?-[a-z]$`)
)

// validate reports everything that is wrong whatever the cloud says.
func (c Config) validate() error {
	errs := []error{
		c.checkPlace(), c.checkNetwork(), c.checkSecondary(), c.checkLabels(),
		config.Match[Config]("gcp-network-tags", resourceName, "a tag: lower case, digits and dashes", c.NetworkTags...),
	}
	if _, err := imagePath(c.Project, c.Image); c.Image != "" && err != nil {
		errs = append(errs, bad("image-name", "%v", err))
	}
	for flagName, value := range map[string]string{"machine-type": c.MachineType, "disk-type": c.DiskType} {
		if !resourceName.MatchString(value) {
			errs = append(errs, bad(flagName, "%q is not a name", value))
		}
	}
	for flagName, value := range map[string]string{"gcp-endpoint": c.Endpoint, "gcp-resource-manager-endpoint": c.ManagerEndpoint} {
		if err := rest.CheckURL(value); err != nil {
			errs = append(errs, bad(flagName, "%v", err))
		}
	}
	for name, price := range c.Prices {
		if n, err := strconv.ParseFloat(price, 64); err != nil || !(n > 0) {
			errs = append(errs, bad("gcp-machine-prices", "%q of %s is not a price", price, name))
		}
	}
	return errors.Join(errs...)
}

func (c Config) checkPlace() error {
	var errs []error
	if !projectName.MatchString(c.Project) {
		errs = append(errs, bad("gcp-project-id", "%q is not a project id", c.Project))
	}
	if len(c.Zones) == 0 {
		errs = append(errs, bad("zone", "it is required and not set"))
	}
	for i, zone := range c.Zones {
		switch {
		case !zoneName.MatchString(zone):
			errs = append(errs, bad("zone", "%q is not a zone such as us-central1-a", zone))
		case slices.Contains(c.Zones[:i], zone):
			errs = append(errs, bad("zone", "%s is there twice", zone))
		}
	}
	return errors.Join(errs...)
}

func (c Config) checkNetwork() error {
	var errs []error
	for _, path := range []struct {
		flag, value string
		absolute    func(project, value string) (string, error)
	}{
		{"network", c.Network, networkPath},
		{"gcp-secondary-network", c.SecondaryNetwork, networkPath},
		{"subnetwork", c.Subnetwork, subnetworkOf("a")},
		{"gcp-secondary-subnetwork", c.SecondarySubnetwork, subnetworkOf("a")},
	} {
		if _, err := path.absolute(c.Project, path.value); (path.value != "" || path.flag == "network") && err != nil {
			errs = append(errs, bad(path.flag, "%v", err))
		}
	}
	return errors.Join(errs...)
}

func (c Config) checkSecondary() error {
	switch {
	case c.SecondaryNetwork == "" && c.SecondarySubnetwork != "":
		return bad("gcp-secondary-subnetwork", "it needs -gcp-secondary-network")
	case c.SecondaryNetwork != "" && c.SecondaryNetwork == c.Network:
		return bad("gcp-secondary-network", "%s is the first interface's: a VM's interfaces are in different networks", c.Network)
	}
	return nil
}

// maxLabels is how many labels a resource may have (Google's page "Labels
// overview"); some are left for the owner tags.
const (
	maxLabels   = 64
	ownerLabels = 16
)

func (c Config) checkLabels() error {
	var errs []error
	for key, value := range c.Labels {
		switch {
		case !labelKey.MatchString(key):
			errs = append(errs, bad("gcp-labels", "%q is not a key of a label: a lower case letter, then at most 62 of a-z, 0-9, - and _", key))
		case strings.HasPrefix(key, "outrigger-"):
			errs = append(errs, bad("gcp-labels", "%q: such labels are the provider's own", key))
		case !labelValue.MatchString(value):
			errs = append(errs, bad("gcp-labels", "%q of %s is not a value of a label: at most 63 of a-z, 0-9, - and _", value, key))
		}
	}
	if len(c.Labels) > maxLabels-ownerLabels {
		errs = append(errs, bad("gcp-labels", "%d labels are more than %d", len(c.Labels), maxLabels-ownerLabels))
	}
	return errors.Join(errs...)
}

// bad names a setting by its flag and its variable.
func bad(flagName, format string, args ...any) error {
	return config.Wrong[Config](flagName, format, args...)
}

func logger() *slog.Logger { return slog.With("provider", Name) }
