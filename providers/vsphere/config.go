// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"encoding/hex"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// Name is the provider's name on command lines.
const Name = "vsphere"

func init() { provider.AddCloudProvider(Name, NewManager()) }

// Config is the provider's configuration. Its variables are those of govc.
type Config struct {
	URL        string        `flag:"vcenter-url" env:"GOVC_URL" required:"true" usage:"vCenter, such as https://vcenter.example or vcenter.example"`
	User       string        `flag:"user-name" env:"GOVC_USERNAME" required:"true" usage:"user of vCenter"`
	Password   config.Secret `env:"GOVC_PASSWORD" required:"true" usage:"password of the user"`
	Thumbprint string        `flag:"thumbprint" env:"GOVC_THUMBPRINT" usage:"SHA-256 (or SHA-1) fingerprint of vCenter's certificate: that certificate and no other is trusted"`
	CAFile     string        `flag:"vsphere-ca-file" env:"GOVC_TLS_CA_CERTS" usage:"PEM file of the authorities that may have signed vCenter's certificate; default those of the system"`

	Datacenter string `flag:"data-center" env:"GOVC_DATACENTER" usage:"datacenter; may be empty where there is one"`
	Folder     string `flag:"deploy-folder" env:"GOVC_FOLDER" usage:"folder of the pod VMs, best one of their own; default the datacenter's VM folder"`
	Template   string `flag:"template" env:"GOVC_TEMPLATE" default:"podvm-template" usage:"template (or VM) that is cloned"`
	Snapshot   string `flag:"vsphere-snapshot" env:"GOVC_SNAPSHOT" usage:"snapshot of the template: clones are linked to it, which takes seconds and no space"`

	Pools     []string `flag:"resource-pool" env:"GOVC_RESOURCE_POOL" usage:"resource pools, or clusters, in the order in which they are tried; may be empty where there is one"`
	Datastore string   `flag:"data-store" env:"GOVC_DATASTORE" usage:"datastore of the VMs; default that of the template"`
	Host      string   `flag:"host" env:"GOVC_HOST" usage:"ESXi host of the VMs; default vCenter's choice"`
	Network   string   `flag:"network" env:"GOVC_NETWORK" usage:"network of the VMs; default that of the template"`

	CPUs   int64 `flag:"cpu" env:"VSPHERE_CPU" default:"2" min:"1" max:"768" usage:"virtual CPUs of a pod that asks for none"`
	Memory int64 `flag:"memory" env:"VSPHERE_MEMORY" default:"8192" unit:"MiB" min:"96" max:"25165824" usage:"memory of a pod that asks for none"`

	AddressWait time.Duration `flag:"vsphere-address-wait" env:"VSPHERE_ADDRESS_WAIT" default:"5m" usage:"how long a VM may take to tell its address"`
}

// NewManager returns a manager with nothing set.
func NewManager() *config.Manager[Config] {
	return config.New(Name, func(c Config) (provider.Provider, error) { return New(c) })
}

// bad returns the error about a setting, by the name of its flag.
func bad(flag, format string, args ...any) error { return config.Wrong[Config](flag, format, args...) }

// validate reports everything that is wrong whatever vCenter says.
func (c Config) validate() (*url.URL, error) {
	u, urlErr := parseURL(c.URL)
	errs := []error{config.Check(c), urlErr, checkThumbprint(c.Thumbprint)}
	if c.Thumbprint != "" && c.CAFile != "" {
		errs = append(errs, bad("thumbprint", "it and -vsphere-ca-file (GOVC_TLS_CA_CERTS) exclude each other"))
	}
	if c.CAFile != "" {
		if _, err := os.ReadFile(c.CAFile); err != nil {
			errs = append(errs, bad("vsphere-ca-file", "%v", err))
		}
	}
	if c.Template == "" {
		errs = append(errs, bad("template", "it is empty"))
	}
	if c.Host != "" && len(c.Pools) > 1 {
		errs = append(errs, bad("host", "a host is in one resource pool; -resource-pool (GOVC_RESOURCE_POOL) names %d", len(c.Pools)))
	}
	if c.AddressWait <= 0 {
		errs = append(errs, bad("vsphere-address-wait", "%v is not more than nothing", c.AddressWait))
	}
	return u, errors.Join(errs...)
}

// parseURL also takes a bare host name, as govc does. User and password have
// settings of their own: in a URL they would be in logs.
func parseURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil // required, and reported as such
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, bad("vcenter-url", "it is not a URL") // the error would show it all
	case u.User != nil:
		return nil, bad("vcenter-url", "user and password belong in -user-name (GOVC_USERNAME) and GOVC_PASSWORD")
	case u.Scheme != "https":
		return nil, bad("vcenter-url", "%s:// is not encrypted, and would show the password; use https://", u.Scheme)
	case u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, bad("vcenter-url", "want https://host[:port][/sdk]")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/sdk"
	}
	return u, nil
}

// checkThumbprint wants the hex digits of SHA-1 or SHA-256.
func checkThumbprint(text string) error {
	digest, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if text != "" && (err != nil || len(digest) != 20 && len(digest) != 32) {
		return bad("thumbprint", "%q is not a SHA-1 or SHA-256 fingerprint in hex digits", text)
	}
	return nil
}

func logger() *slog.Logger { return slog.With("provider", Name) }
