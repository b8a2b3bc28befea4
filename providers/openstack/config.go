// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"errors"
	"log/slog"
	"net/url"
	"os"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/instancetypes"
)

// Name is the provider's name on command lines.
const Name = "openstack"

func init() { provider.AddCloudProvider(Name, NewManager()) }

// Config is the provider's configuration. The variables OS_* are those of the
// openstack command.
type Config struct {
	Cloud         string `flag:"os-cloud" env:"OS_CLOUD" usage:"entry of clouds.yaml; the credentials below replace it where they are set"`
	CloudsFile    string `flag:"os-client-config-file" env:"OS_CLIENT_CONFIG_FILE" usage:"the clouds.yaml; default the usual places"`
	AuthURL       string `flag:"os-auth-url" env:"OS_AUTH_URL" usage:"Keystone, such as https://keystone.example:5000/v3"`
	User          string `flag:"os-username" env:"OS_USERNAME" usage:"user"`
	UserDomain    string `flag:"os-user-domain-name" env:"OS_USER_DOMAIN_NAME" default:"Default" usage:"domain of the user"`
	Project       string `flag:"os-project-name" env:"OS_PROJECT_NAME" usage:"project, by name"`
	ProjectID     string `flag:"os-project-id" env:"OS_PROJECT_ID" usage:"project, by id"`
	ProjectDomain string `flag:"os-project-domain-name" env:"OS_PROJECT_DOMAIN_NAME" default:"Default" usage:"domain of the project"`
	Region        string `flag:"os-region-name" env:"OS_REGION_NAME" usage:"region; may be empty where there is one"`
	Interface     string `flag:"os-interface" env:"OS_INTERFACE" default:"public" choices:"public,internal,admin" usage:"which endpoints of the catalogue are used"`
	CAFile        string `flag:"os-cacert" env:"OS_CACERT" usage:"PEM file of the authorities that may have signed the endpoints' certificates; default those of the system"`
	AppCredID     string `flag:"os-application-credential-id" env:"OS_APPLICATION_CREDENTIAL_ID" usage:"application credential, in place of user and project"`

	Password      config.Secret `env:"OS_PASSWORD" usage:"password of the user"`
	AppCredSecret config.Secret `env:"OS_APPLICATION_CREDENTIAL_SECRET" usage:"secret of the application credential"`

	Image   string                 `flag:"imageid" env:"OPENSTACK_IMAGE_ID" required:"true" usage:"id of the pod VM image"`
	Flavor  string                 `flag:"instance-type" env:"OPENSTACK_FLAVOR" required:"true" usage:"flavor of a pod that asks for no size, by name"`
	Flavors instancetypes.Patterns `flag:"instance-types" env:"OPENSTACK_FLAVORS" usage:"flavors that pods may have besides, by name; *, ? and [a-z] are patterns"`
	Arch    string                 `flag:"openstack-arch" env:"OPENSTACK_ARCH" default:"amd64" choices:"amd64,arm64,s390x,ppc64le" usage:"architecture of the flavors"`
	Zones   []string               `flag:"availability-zones" env:"OPENSTACK_AVAILABILITY_ZONES" usage:"availability zones in the order in which they are tried; default Nova's choice"`
	Network string                 `flag:"network-id" env:"OPENSTACK_NETWORK_ID" required:"true" usage:"id of the network of the VMs"`
	Subnet  string                 `flag:"subnet-id" env:"OPENSTACK_SUBNET_ID" usage:"id of the subnet of their addresses; default Neutron's choice"`
	Groups  []string               `flag:"security-group-ids" env:"OPENSTACK_SECURITY_GROUP_IDS" usage:"ids of the security groups of the VMs; default the project's default group"`
	KeyName string                 `flag:"keyname" env:"OPENSTACK_KEY_NAME" usage:"key pair of the VMs"`

	FloatingNetwork string            `flag:"floating-network-id" env:"OPENSTACK_FLOATING_NETWORK_ID" usage:"id of the external network from which each VM gets a floating IP, over which it is then reached"`
	ConfigDrive     bool              `flag:"config-drive" env:"OPENSTACK_CONFIG_DRIVE" default:"true" usage:"hand the user-data over on a disk; false leaves the metadata service"`
	RootVolume      int64             `flag:"root-volume-size" env:"ROOT_VOLUME_SIZE" default:"0" unit:"GiB" min:"0" max:"16384" usage:"boot from a volume of that size; 0 is the flavor's own disk"`
	VolumeType      string            `flag:"root-volume-type" env:"OPENSTACK_ROOT_VOLUME_TYPE" usage:"type of the root volume"`
	Tags            map[string]string `flag:"tags" env:"TAGS" usage:"more metadata of the servers"`
}

// NewManager returns a manager with nothing set.
func NewManager() *config.Manager[Config] {
	return config.New(Name, func(c Config) (provider.Provider, error) { return New(c) }).ForImport(forImport)
}

// forImport stands in for settings of instances, which imports do not use.
func forImport(c *Config) {
	c.Image, c.Flavor, c.Network = "none", "none", "none"
}

// bad returns the error about a setting, by the name of its flag or variable.
func bad(name, format string, args ...any) error { return config.Wrong[Config](name, format, args...) }

// validate reports everything that is wrong whatever the cloud says.
func (c Config) validate() error {
	errs := []error{config.Check(c), c.checkCredentials()}
	if c.CAFile != "" {
		if _, err := os.ReadFile(c.CAFile); err != nil {
			errs = append(errs, bad("os-cacert", "%v", err))
		}
	}
	if c.VolumeType != "" && c.RootVolume == 0 {
		errs = append(errs, bad("root-volume-type", "it needs -root-volume-size (ROOT_VOLUME_SIZE)"))
	}
	if err := checkItems(len(c.Tags), ownItems); err != nil {
		errs = append(errs, bad("tags", "%v", err))
	}
	for key, value := range c.Tags {
		if err := checkMetadata(key, value); err != nil {
			errs = append(errs, bad("tags", "%v", err))
		}
	}
	return errors.Join(errs...)
}

func (c Config) checkCredentials() error {
	if c.Cloud != "" && c.AuthURL == "" {
		return nil // clouds.yaml has them
	}
	errs := []error{checkURL(c.AuthURL)}
	switch {
	case c.AppCredID != "" && c.AppCredSecret == "":
		errs = append(errs, bad("OS_APPLICATION_CREDENTIAL_SECRET", "it is required with -os-application-credential-id (OS_APPLICATION_CREDENTIAL_ID)"))
	case c.AppCredID == "":
		errs = append(errs, c.checkPassword())
	}
	return errors.Join(errs...)
}

func (c Config) checkPassword() error {
	var errs []error
	if c.User == "" {
		errs = append(errs, bad("os-username", "it or -os-application-credential-id (OS_APPLICATION_CREDENTIAL_ID) is required"))
	}
	if c.Password == "" {
		errs = append(errs, bad("OS_PASSWORD", "it is required with -os-username (OS_USERNAME)"))
	}
	if c.Project == "" && c.ProjectID == "" {
		errs = append(errs, bad("os-project-name", "it or -os-project-id (OS_PROJECT_ID) is required"))
	}
	return errors.Join(errs...)
}

func checkURL(text string) error {
	if text == "" {
		return bad("os-auth-url", "it, or -os-cloud (OS_CLOUD), is required")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return bad("os-auth-url", "%q is not a URL such as https://keystone.example:5000/v3", text)
	case u.User != nil:
		return bad("os-auth-url", "user and password belong in -os-username (OS_USERNAME) and OS_PASSWORD")
	}
	return nil
}

func logger() *slog.Logger { return slog.With("provider", Name) }
