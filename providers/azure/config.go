// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
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
const Name = "azure"

func init() { provider.AddCloudProvider(Name, NewManager()) }

// Config is the provider's configuration.
type Config struct {
	ClientID     string        `flag:"clientid" env:"AZURE_CLIENT_ID" secret:"true" usage:"client id of the application or managed identity"`
	ClientSecret config.Secret `flag:"secret" env:"AZURE_CLIENT_SECRET" usage:"client secret of the application; empty means workload identity"`
	TenantID     string        `flag:"tenantid" env:"AZURE_TENANT_ID" secret:"true" usage:"tenant of the application"`

	SubscriptionID  string   `flag:"subscriptionid" env:"AZURE_SUBSCRIPTION_ID" required:"true" usage:"subscription of the VMs"`
	Region          string   `flag:"region" env:"AZURE_REGION" required:"true" usage:"region of the VMs, such as eastus"`
	Zones           []string `flag:"zone" env:"AZURE_ZONE" usage:"availability zones to try, in this order, such as 1,2,3; none makes VMs of no zone"`
	ResourceGroup   string   `flag:"resourcegroup" env:"AZURE_RESOURCE_GROUP" required:"true" usage:"resource group of the VMs"`
	SubnetID        string   `flag:"subnetid" env:"AZURE_SUBNET_ID" required:"true" usage:"resource id of the VMs' subnet"`
	SecurityGroupID string   `flag:"securitygroupid" env:"AZURE_NSG_ID" usage:"resource id of the network security group of the VMs' interfaces"`
	ImageID         string   `flag:"imageid" env:"AZURE_IMAGE_ID" required:"true" usage:"pod VM image: resource id of a managed image or of a gallery's image, or /CommunityGalleries/... or /SharedGalleries/..."`

	Size  string                 `flag:"instance-size" env:"AZURE_INSTANCE_SIZE" default:"Standard_DC2as_v5" usage:"VM size of a pod that asks for none"`
	Sizes instancetypes.Patterns `flag:"instance-sizes" env:"AZURE_INSTANCE_SIZES" usage:"VM sizes that pods may have besides that; patterns such as Standard_DC*as_v5, * for all"`

	SSHKeyPath       string            `flag:"ssh-key-path" usage:"public key file of -ssh-username; without one nobody can log in"`
	SSHUser          string            `flag:"ssh-username" env:"SSH_USERNAME" default:"peerpod" usage:"administrator account of the VMs"`
	DisableCVM       bool              `flag:"disable-cvm" env:"DISABLECVM" default:"false" usage:"make ordinary VMs in place of confidential ones"`
	EnableSecureBoot bool              `flag:"enable-secure-boot" env:"ENABLE_SECURE_BOOT" default:"false" usage:"secure boot; ordinary VMs become trusted launch VMs"`
	UsePublicIP      bool              `flag:"use-public-ip" env:"USE_PUBLIC_IP" default:"false" usage:"give VMs a public address and reach them there"`
	RootVolumeSize   int64             `flag:"root-volume-size" env:"ROOT_VOLUME_SIZE" default:"0" unit:"GiB" min:"0" max:"4095" usage:"size of the OS disk; 0 is that of the image"`
	Tags             map[string]string `flag:"tags" env:"TAGS" usage:"more tags for VMs, disks, interfaces and addresses"`

	Credential      string  `flag:"azure-credential" env:"AZURE_CREDENTIAL" default:"auto" choices:"auto,secret,workload-identity,managed-identity" usage:"how to authenticate; auto is the secret where there is one, else workload identity"`
	TokenFile       string  `flag:"azure-federated-token-file" env:"AZURE_FEDERATED_TOKEN_FILE" default:"/var/run/secrets/azure/tokens/azure-identity-token" usage:"service account token for workload identity"`
	Environment     string  `flag:"azure-environment" env:"AZURE_ENVIRONMENT" default:"AzurePublicCloud" choices:"AzurePublicCloud,AzureUSGovernmentCloud,AzureChinaCloud" usage:"the Azure cloud"`
	AuthorityHost   string  `flag:"azure-authority-host" env:"AZURE_AUTHORITY_HOST" usage:"URL of the Microsoft Entra authority; default that of -azure-environment"`
	Endpoint        string  `flag:"azure-endpoint" env:"AZURE_RESOURCE_MANAGER_ENDPOINT" usage:"URL of the Azure Resource Manager; default that of -azure-environment"`
	CAFile          string  `flag:"azure-ca-file" env:"AZURE_CA_FILE" usage:"certificate authorities, as PEM, to trust besides those of the system"`
	DiskType        string  `flag:"azure-disk-type" env:"AZURE_DISK_TYPE" default:"StandardSSD_LRS" choices:"Standard_LRS,StandardSSD_LRS,Premium_LRS,StandardSSD_ZRS,Premium_ZRS" usage:"storage of the OS disk"`
	DiskKeySet      string  `flag:"azure-disk-encryption-set-id" env:"AZURE_DISK_ENCRYPTION_SET_ID" usage:"resource id of the disk encryption set whose key encrypts the OS disk; for confidential VMs one of the type for them; default Azure's key"`
	DiskEncryption  string  `flag:"azure-disk-encryption" env:"AZURE_DISK_ENCRYPTION" default:"VMGuestStateOnly" choices:"VMGuestStateOnly,DiskWithVMGuestState,NonPersistedTPM" usage:"what of a confidential VM's disk is encrypted with the VM's key"`
	Spot            bool    `flag:"azure-spot" env:"AZURE_SPOT" default:"false" usage:"make spot VMs, which are deleted when Azure evicts them"`
	SpotMaxPrice    decimal `flag:"azure-spot-max-price" env:"AZURE_SPOT_MAX_PRICE" default:"-1" usage:"most US dollars per hour of a spot VM; -1 is the price of an ordinary one"`
	BootDiagnostics bool    `flag:"azure-boot-diagnostics" env:"AZURE_BOOT_DIAGNOSTICS" default:"true" usage:"let Azure keep the serial console of the VMs"`
	Prices          prices  `flag:"azure-prices" env:"AZURE_PRICES" usage:"prices per hour by VM size, such as Standard_D2s_v5=0.096,..; where several sizes fit, the cheapest is tried first"`
}

// NewManager returns a manager with nothing set.
func NewManager() *config.Manager[Config] {
	return config.New(Name, func(c Config) (provider.Provider, error) { return New(c) }).ForImport(forImport)
}

// forImport stands in for settings of instances, which imports do not use.
func forImport(c *Config) {
	c.ImageID = "/CommunityGalleries/none/Images/none"
	c.SubnetID = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/none/providers/Microsoft.Network/virtualNetworks/none/subnets/none"
}

// decimal is a number of a currency.
type decimal float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *decimal) UnmarshalText(text []byte) error {
	value, err := strconv.ParseFloat(string(text), 64)
	if err != nil || value != -1 && !(value > 0 && value < 1e6) {
		return fmt.Errorf("%q is neither -1 nor a number of dollars above 0", text)
	}
	*d = decimal(value)
	return nil
}

// prices are by VM size.
type prices map[string]float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *prices) UnmarshalText(text []byte) error {
	table := prices{}
	for part := range strings.SplitSeq(string(text), ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		price, err := strconv.ParseFloat(value, 64)
		if !ok || name == "" || err != nil || !(price > 0 && price < 1e6) {
			return fmt.Errorf("%q is not size=price", part)
		}
		table[name] = price
	}
	*p = table
	return nil
}

// Ways to authenticate.
const (
	credentialAuto     = "auto"
	credentialSecret   = "secret"
	credentialWorkload = "workload-identity"
	credentialManaged  = "managed-identity"
)

// credential returns how to authenticate.
func (c Config) credential() string {
	switch {
	case c.Credential != credentialAuto && c.Credential != "":
		return c.Credential
	case c.ClientSecret != "":
		return credentialSecret
	}
	return credentialWorkload
}

var (
	guidSyntax  = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	tenantName  = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.-]{0,252}$`)
	regionName  = regexp.MustCompile(`^[a-z0-9]{2,40}$`)
	groupName   = regexp.MustCompile(`^[-\w.()]{0,89}[-\w()]$`)
	zoneName    = regexp.MustCompile(`^[0-9]{1,2}$`)
	userName    = regexp.MustCompile(`^[a-z_][-a-z0-9_]{0,31}$`)
	subnetIDs   = resourceID("Microsoft.Network/virtualNetworks", "subnets")
	securityIDs = resourceID("Microsoft.Network/networkSecurityGroups")
)

// reservedUsers are account names that Azure refuses (virtualMachines, PUT:
// osProfile.adminUsername), those that look like account names of Linux.
var reservedUsers = []string{"administrator", "admin", "user", "root", "guest", "owner", "server", "sql", "support", "sys", "test", "console", "backup", "adm", "actuser", "aspnet", "david", "john"}

// validate reports everything that is wrong whatever the cloud says.
func (c Config) validate() error {
	errs := []error{
		config.Check(c),
		match("subscriptionid", c.SubscriptionID, guidSyntax, "a subscription's id, such as 00000000-0000-0000-0000-000000000000"),
		match("region", c.Region, regionName, "a region's short name, such as eastus"),
		match("resourcegroup", c.ResourceGroup, groupName, "the name of a resource group"),
		match("subnetid", c.SubnetID, subnetIDs, "a resource id /subscriptions/../resourceGroups/../providers/Microsoft.Network/virtualNetworks/../subnets/.."),
		match("securitygroupid", c.SecurityGroupID, securityIDs, "a resource id /subscriptions/../resourceGroups/../providers/Microsoft.Network/networkSecurityGroups/.."),
		match("instance-size", c.Size, sizeName, "the name of a VM size, such as Standard_DC2as_v5"),
		match("ssh-username", c.SSHUser, userName, "the name of an account"),
		config.Match[Config]("zone", zoneName, "a zone, such as 1", c.Zones...), c.validateCredential(), c.validateRest(), checkTags(c.Tags),
	}
	if _, err := parseImage(c.ImageID); err != nil && c.ImageID != "" {
		errs = append(errs, wrong("imageid", "%v", err))
	}
	if slices.Contains(reservedUsers, c.SSHUser) {
		errs = append(errs, wrong("ssh-username", "Azure refuses the account name %q", c.SSHUser))
	}
	return errors.Join(errs...)
}

func (c Config) validateCredential() error {
	how := c.credential()
	if how == credentialManaged {
		return match("clientid", c.ClientID, guidSyntax, "the client id of a managed identity")
	}
	var errs []error
	if c.ClientID == "" {
		errs = append(errs, wrong("clientid", "it is empty, and credentials of kind %s need it", how))
	}
	if c.TenantID == "" {
		errs = append(errs, wrong("tenantid", "it is empty, and credentials of kind %s need it", how))
	}
	errs = append(errs, matchQuietly("clientid", c.ClientID, guidSyntax), matchQuietly("tenantid", c.TenantID, tenantName))
	switch {
	case how == credentialSecret && c.ClientSecret == "":
		errs = append(errs, wrong("secret", "it is empty, and -azure-credential (AZURE_CREDENTIAL) is secret"))
	case how == credentialWorkload && c.TokenFile == "":
		errs = append(errs, wrong("azure-federated-token-file", "it is empty, and there is no -secret (AZURE_CLIENT_SECRET)"))
	case how == credentialWorkload:
		if _, err := os.Stat(c.TokenFile); err != nil {
			errs = append(errs, wrong("azure-federated-token-file", "%v; set it, or -secret (AZURE_CLIENT_SECRET)", err))
		}
	}
	return errors.Join(errs...)
}

func (c Config) validateRest() error {
	var errs []error
	for flag, text := range map[string]string{"azure-authority-host": c.AuthorityHost, "azure-endpoint": c.Endpoint} {
		if err := rest.CheckURL(text); text != "" && err != nil {
			errs = append(errs, wrong(flag, "%v", err))
		}
	}
	if !c.DisableCVM && c.DiskEncryption == "DiskWithVMGuestState" && !c.EnableSecureBoot {
		errs = append(errs, wrong("azure-disk-encryption", "DiskWithVMGuestState needs -enable-secure-boot (ENABLE_SECURE_BOOT)"))
	}
	return errors.Join(errs...)
}

// wrong names a setting by its flag and its variable.
func wrong(flag, format string, args ...any) error {
	return config.Wrong[Config](flag, format, args...)
}

func match(flag, value string, syntax *regexp.Regexp, what string) error {
	return config.Match[Config](flag, syntax, what, value)
}

// matchQuietly is like match but does not quote the value, which comes from a secret.
func matchQuietly(flag, value string, syntax *regexp.Regexp) error {
	if value == "" || syntax.MatchString(value) {
		return nil
	}
	return wrong(flag, "the value is not an id of that kind")
}

func logger() *slog.Logger { return slog.With("provider", Name) }
