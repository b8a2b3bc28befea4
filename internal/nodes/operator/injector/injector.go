// SPDX-License-Identifier: Apache-2.0

// Package injector puts the credentials of a Secret into the configuration of
// Azure's cloud provider, which takes them from nowhere else. It runs before
// the container that reads the result.
package injector

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/jsonobject"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/wholefile"
)

// Identity says whether workload identity may be used. It is used when the Secret has a
// token file, unless it is identityOff, with which the client's secret is needed.
type Identity string

const identityOff Identity = "false"

// Options are what the injector needs.
type Options struct {
	ConfigFile  string `flag:"cloud-config-file-path" default:"/tmp/cloud-config/cloud.conf" usage:"file with the configuration"`
	OutputFile  string `flag:"output-file-path" default:"/tmp/merged-cloud-config/cloud.conf" usage:"file that is written: the configuration with credentials"`
	Credentials string `flag:"creds-path" default:"/etc/azure/credentials" usage:"folder with the keys of the Secret"`
	// Mode is that of OutputFile.
	Mode mode `flag:"output-file-mode" default:"0640" usage:"mode of the file that is written, octal; nothing for others"`
	// DisableIdentityExtension is wanted because that identity would win over the credentials.
	DisableIdentityExtension bool     `flag:"disable-identity-extension-auth" usage:"turn off the identity of the machine where the configuration turns it on"`
	WorkloadIdentity         Identity `flag:"enable-azure-workload-identity" usage:"whether workload identity may be used: true, false, or nothing: as the Secret has it"`
	Log                      *slog.Logger
}

// credentials are the keys of the Secret; those that are missing are empty.
type credentials struct{ client, secret, tokenFile, tenant string }

// Run writes the output file. It is written again as a whole, or left as it is.
func (o Options) Run() error {
	if _, err := os.Stat(o.ConfigFile); err != nil {
		return fmt.Errorf("--cloud-config-file-path: %w", err)
	}
	c, err := o.readCredentials()
	if err != nil {
		return err
	}
	data, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		return fmt.Errorf("couldn't read cloud config from file: %w", err)
	}
	config, err := jsonobject.Parse(string(data))
	if err != nil {
		return fmt.Errorf("couldn't read cloud config from file: %s: %w", o.ConfigFile, err)
	}
	if err := o.inject(config, c); err != nil {
		return fmt.Errorf("couldn't prepare cloud config: %w", err)
	}
	text, err := config.Write()
	if err == nil {
		err = o.write(text)
	}
	if err != nil {
		return fmt.Errorf("couldn't write prepared cloud config to file: %w", err)
	}
	return nil
}

func (o Options) readCredentials() (c credentials, err error) {
	if c.client, err = o.read("azure_client_id"); err == nil && c.client == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return c, fmt.Errorf("failed to read azure_client_id from secret: %w", err)
	}
	for name, to := range map[string]*string{"azure_client_secret": &c.secret, "azure_federated_token_file": &c.tokenFile, "azure_tenant_id": &c.tenant} {
		if *to, err = o.read(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return c, fmt.Errorf("failed to read %s from secret: %w", name, err)
		}
	}
	return c, o.check(&c)
}

// read returns a key of the Secret. The newline that editors put at the end of
// a file is not part of it.
func (o Options) read(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(o.Credentials, name))
	return strings.TrimRight(string(data), "\r\n"), err
}

// check leaves either the client's secret or the token file.
func (o Options) check(c *credentials) error {
	if c.tokenFile != "" && o.WorkloadIdentity == identityOff {
		if c.secret == "" {
			return errors.New("azure_client_secret should be set up: the Secret has azure_federated_token_file, but --enable-azure-workload-identity is false")
		}
		c.tokenFile = ""
	}
	switch {
	case c.tokenFile == "" && c.secret == "":
		return errors.New("azure_client_secret should be set up")
	case c.tokenFile != "" && c.secret != "":
		return errors.New("azure_client_secret is set while workload identity is enabled using azure_federated_token_file: remove one of them from the Secret, or pass --enable-azure-workload-identity=false")
	case c.tokenFile != "" && c.tenant == "":
		return errors.New("azure_tenant_id should be set up while workload identity is enabled using azure_federated_token_file")
	}
	return nil
}

func (o Options) inject(config jsonobject.Object, c credentials) error {
	config.Set("aadClientId", c.client)
	const extension = "useManagedIdentityExtension"
	managed, err := config.Get(extension)
	if err != nil {
		return err
	}
	if _, found := config[extension]; found && o.DisableIdentityExtension {
		config.Set(extension, false)
	} else if managed == true {
		o.Log.Warn("the identity of the machine wins over the credentials that are put in: pass --disable-identity-extension-auth", "key", extension)
	}
	if c.tokenFile == "" {
		config.Set("aadClientSecret", c.secret)
		return nil
	}
	config.Set("tenantId", c.tenant)
	config.Set("aadFederatedTokenFile", c.tokenFile)
	config.Set("useFederatedWorkloadIdentityExtension", true)
	return nil
}

// write puts the file in place when it is whole. What is there and is not a file,
// such as a device, is not replaced.
func (o Options) write(text string) error {
	if there, err := os.Lstat(o.OutputFile); err == nil && !there.Mode().IsRegular() {
		return fmt.Errorf("--output-file-path %s is not a regular file: name one that is, or none that is there", o.OutputFile)
	}
	return wholefile.Replace(o.OutputFile, []byte(text), fs.FileMode(o.Mode))
}

// Command returns the injector as a command.
func Command() *cobra.Command {
	var o Options
	var wrong func() error
	c := &cobra.Command{
		Use:   "azure-config-credentials-injector",
		Short: "Put the credentials of a Secret into the configuration of Azure's cloud provider",
		Long: `Put the credentials of a Secret into the configuration of Azure's cloud provider.

The folder --creds-path has the Secret's keys as files: azure_client_id, and
either azure_client_secret or, for workload identity, azure_federated_token_file
with azure_tenant_id. The result is readable by its user and group alone: let
the container that reads it have the same user, or give the pod an fsGroup.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := wrong(); err != nil {
				return program.UsageError(err)
			}
			o.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
			return o.Run()
		},
	}
	wrong = commandline.Settings(c.Flags(), &o)
	return c
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *Identity) UnmarshalText(text []byte) error {
	on, err := strconv.ParseBool(string(text))
	if err != nil && len(text) > 0 {
		return errors.New("want true or false")
	}
	if *i = ""; len(text) > 0 {
		*i = Identity(strconv.FormatBool(on))
	}
	return nil
}

type mode fs.FileMode

func (m mode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *mode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n > 0o777 || n&0o007 != 0 || n&0o400 == 0 {
		return errors.New("want a mode such as 0640 that the user can read and others cannot")
	}
	*m = mode(n)
	return nil
}
