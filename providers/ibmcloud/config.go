// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"errors"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

// Name is the provider's name on command lines.
const Name = "ibmcloud"

func init() { provider.AddCloudProvider(Name, NewManager()) }

// Config is the provider's configuration.
type Config struct {
	APIKey    config.Secret `flag:"api-key" env:"IBMCLOUD_API_KEY" usage:"API key of an account or service id"`
	ProfileID string        `flag:"iam-profile-id" env:"IBMCLOUD_IAM_PROFILE_ID" usage:"trusted profile, in place of an API key: the token in -cr-token-filename is exchanged for it"`
	TokenFile string        `flag:"cr-token-filename" default:"/var/run/secrets/tokens/vault-token" usage:"service account token of the cluster, audience iam, for -iam-profile-id"`
	IAM       string        `flag:"iam-service-url" env:"IBMCLOUD_IAM_ENDPOINT" default:"https://iam.cloud.ibm.com/identity/token" usage:"URL of the token service"`
	VPCURL    string        `flag:"vpc-service-url" env:"IBMCLOUD_VPC_ENDPOINT" usage:"URL of the VPC API; default that of the zones' region"`

	ResourceGroup string   `flag:"resource-group-id" env:"IBMCLOUD_RESOURCE_GROUP_ID" usage:"resource group of the instances; default the account's, or without -vpc-id the first subnet's"`
	Zones         []string `flag:"zone-name" env:"IBMCLOUD_ZONE" label:"topology.kubernetes.io/zone" usage:"zones, in the order in which they are tried, all in one region"`
	Subnets       []string `flag:"primary-subnet-id" env:"IBMCLOUD_VPC_SUBNET_ID" label:"ibm-provider.kubernetes.io/subnet-id,ibm-cloud.kubernetes.io/subnet-id" usage:"subnet of the VMs in each zone, in the same order"`
	VPC           string   `flag:"vpc-id" env:"IBMCLOUD_VPC_ID" usage:"VPC of the subnets; default that of the first, whose resource group is then the default too"`
	SSHKey        string   `flag:"key-id" env:"IBMCLOUD_SSH_KEY_ID" usage:"SSH key of the VMs"`
	DiskKey       string   `flag:"ibmcloud-boot-volume-key-crn" env:"IBMCLOUD_BOOT_VOLUME_KEY_CRN" usage:"CRN of the root key in Key Protect or Hyper Protect Crypto Services that wraps those of boot volumes and disks; default IBM's"`
	Images        []string `flag:"image-id" env:"IBMCLOUD_PODVM_IMAGE_ID" required:"true" usage:"pod VM images, one for each architecture"`

	Profile    string                 `flag:"profile-name" env:"IBMCLOUD_PODVM_INSTANCE_PROFILE_NAME" usage:"instance profile of a pod that asks for none; default the first name in -profile-list"`
	Profiles   instancetypes.Patterns `flag:"profile-list" env:"IBMCLOUD_PODVM_INSTANCE_PROFILE_LIST" usage:"instance profiles that pods may get besides the default, such as bx2-*"`
	Prices     map[string]string      `flag:"ibmcloud-profile-prices" env:"IBMCLOUD_PROFILE_PRICES" usage:"price per hour of profiles, such as bx2-2x8=0.1: the cheapest that fits is taken. The API tells no prices; without one the smallest is taken"`
	DisableCVM bool                   `flag:"disable-cvm" env:"DISABLECVM" default:"true" usage:"make ordinary VMs; false makes confidential ones (TDX) with secure boot where the profile is for amd64"`
	RootDisk   int64                  `flag:"ibmcloud-root-volume-size" env:"IBMCLOUD_ROOT_VOLUME_SIZE" unit:"GB" min:"0" max:"250" usage:"size of the boot volume; 0 is the image's"`

	ClusterID          string   `flag:"cluster-id" env:"IBMCLOUD_CLUSTER_ID" usage:"cluster of the Kubernetes Service: VMs join its security group unless others are named, and get the tag coco-pod-vm"`
	SecurityGroups     []string `flag:"security-group-ids" env:"IBMCLOUD_SECURITY_GROUP_IDS" usage:"security groups of the VMs; default those of the cluster, else of the VPC"`
	SecondarySubnets   []string `flag:"secondary-subnet-id" usage:"subnet, in each zone, of a second interface for the tunnel of the pod network"`
	SecondaryGroup     string   `flag:"secondary-security-group-id" usage:"security group of the second interface"`
	DedicatedHosts     []string `flag:"dedicated-host-ids" env:"IBMCLOUD_DEDICATED_HOST_IDS" usage:"dedicated host of the VMs in each zone"`
	DedicatedHostGroup []string `flag:"dedicated-host-group-ids" env:"IBMCLOUD_DEDICATED_HOST_GROUP_IDS" usage:"dedicated host group of the VMs in each zone"`

	Tags   map[string]string `flag:"tags" env:"TAGS" usage:"tags of boot volumes, disks and snapshots"`
	CAFile string            `flag:"ibmcloud-ca-file" env:"IBMCLOUD_CA_FILE" usage:"certificates to trust besides the system's, as PEM"`
}

// NewManager returns a manager with nothing set.
func NewManager() *config.Manager[Config] {
	return config.New(Name, func(c Config) (provider.Provider, error) { return New(c) }).ForImport(forImport)
}

// forImport stands in for settings of instances, which imports do not use.
func forImport(c *Config) {
	c.VPC, c.Images, c.Subnets = "none", []string{"none"}, slices.Repeat([]string{"none"}, len(c.Zones))
	c.Profile = "bx2-2x8"
}

var (
	zoneName = regexp.MustCompile(`^[a-z]+(-[a-z]+)*-\d+$`)
	// identifier is any id of the VPC API ("Pattern" in its reference).
	identifier = regexp.MustCompile(`^[-0-9a-z_]{1,64}$`)
	// profileID is that of a trusted profile.
	profileID = regexp.MustCompile(`^(iam-)?[-A-Za-z0-9]+$`)
)

// validate reports everything that is wrong whatever the cloud says.
func (c Config) validate() error {
	errs := []error{c.checkCredentials(), c.checkZones(), c.checkIDs(), checkURL("iam-service-url", c.IAM), c.checkTags()}
	if c.VPCURL != "" {
		errs = append(errs, checkURL("vpc-service-url", c.VPCURL))
	}
	if c.Profile == "" && len(c.Profiles) == 0 {
		errs = append(errs, bad("profile-name", "neither it nor -profile-list is set"))
	}
	for name, price := range c.Prices {
		if n, err := strconv.ParseFloat(price, 64); err != nil || !(n > 0) {
			errs = append(errs, bad("ibmcloud-profile-prices", "%q of %s is not a price", price, name))
		}
	}
	return errors.Join(errs...)
}

func (c Config) checkCredentials() error {
	switch {
	case c.APIKey != "" && c.ProfileID != "":
		return bad("api-key", "-iam-profile-id is set too: use one")
	case c.APIKey != "":
		if text := c.APIKey.Reveal(); strings.ContainsAny(text, "{}\" \n") {
			return bad("api-key", "it has a blank, quote, brace or line break, which API keys have not")
		}
		return nil
	case c.ProfileID == "":
		return bad("api-key", "neither it nor -iam-profile-id (IBMCLOUD_IAM_PROFILE_ID) is set")
	case !profileID.MatchString(c.ProfileID):
		return bad("iam-profile-id", "%q is not an id of a trusted profile", c.ProfileID)
	}
	text, err := os.ReadFile(c.TokenFile)
	switch {
	case err != nil:
		return bad("cr-token-filename", "%v", err)
	case strings.TrimSpace(string(text)) != string(text):
		return bad("cr-token-filename", "%s has blanks or line breaks around the token, which would be sent along", c.TokenFile)
	}
	return nil
}

func (c Config) checkZones() error {
	var errs []error
	if len(c.Zones) == 0 {
		errs = append(errs, c.absent("zone-name"))
	}
	for _, zone := range c.Zones {
		if !zoneName.MatchString(zone) {
			errs = append(errs, bad("zone-name", "%q is not a zone such as us-south-1", zone))
		} else if names.RegionOf(zone) != c.region() {
			errs = append(errs, bad("zone-name", "%s is in another region than %s", zone, c.Zones[0]))
		}
	}
	if len(c.Subnets) == 0 {
		errs = append(errs, c.absent("primary-subnet-id"))
	} else if len(c.Subnets) != len(c.Zones) {
		errs = append(errs, bad("primary-subnet-id", "%d subnets for %d zones: name one for each", len(c.Subnets), len(c.Zones)))
	}
	for flagName, list := range map[string][]string{
		"secondary-subnet-id": c.SecondarySubnets, "dedicated-host-ids": c.DedicatedHosts, "dedicated-host-group-ids": c.DedicatedHostGroup,
	} {
		if len(list) > 0 && len(list) != len(c.Zones) {
			errs = append(errs, bad(flagName, "%d for %d zones: name one for each, or none", len(list), len(c.Zones)))
		}
	}
	if len(c.DedicatedHosts) > 0 && len(c.DedicatedHostGroup) > 0 {
		errs = append(errs, bad("dedicated-host-ids", "-dedicated-host-group-ids is set too: use one"))
	}
	return errors.Join(errs...)
}

// absent returns the error for a setting that is neither set nor known from the node.
func (c Config) absent(flagName string) error {
	return bad(flagName, "it is required and not set, and no label of the node says it (%s)", strings.Join(config.Labels[Config](flagName), ", "))
}

func (c Config) checkIDs() error {
	var errs []error
	for flagName, ids := range map[string][]string{
		"primary-subnet-id": c.Subnets, "secondary-subnet-id": c.SecondarySubnets, "image-id": c.Images, "vpc-id": {c.VPC}, "key-id": {c.SSHKey},
		"resource-group-id": {c.ResourceGroup}, "security-group-ids": c.SecurityGroups, "secondary-security-group-id": {c.SecondaryGroup},
		"dedicated-host-ids": c.DedicatedHosts, "dedicated-host-group-ids": c.DedicatedHostGroup,
	} {
		errs = append(errs, config.Match[Config](flagName, identifier, "an id", ids...))
	}
	if len(c.Images) == 0 {
		errs = append(errs, bad("image-id", "it is required and not set"))
	}
	return errors.Join(errs...)
}

func checkURL(flagName, value string) error {
	if err := rest.CheckURL(value); err != nil {
		return bad(flagName, "%v", err)
	}
	return nil
}

func (c Config) checkTags() error {
	if _, err := userTags(c.Tags); err != nil {
		return bad("tags", "%v", err)
	}
	return nil
}

// region returns the region of the zones.
func (c Config) region() string { return names.RegionOf(c.Zones[0]) }

// service returns the URL of the VPC API.
func (c Config) service() string {
	if c.VPCURL == "" {
		return "https://" + c.region() + ".iaas.cloud.ibm.com/v1"
	}
	return strings.TrimSuffix(c.VPCURL, "/")
}

// defaultProfile returns the profile of a pod that requests none.
func (c Config) defaultProfile() string {
	if c.Profile != "" {
		return c.Profile
	}
	for _, name := range c.Profiles {
		if !strings.ContainsAny(name, "*?[") {
			return name
		}
	}
	return ""
}

// bad names a setting by its flag and its variable.
func bad(flagName, format string, args ...any) error {
	return config.Wrong[Config](flagName, format, args...)
}

func logger() *slog.Logger { return slog.With("provider", Name) }
