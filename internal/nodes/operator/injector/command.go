// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"

	"github.com/spf13/cobra"
)

// Command returns the injector as a command.
func Command() *cobra.Command {
	o := Options{Mode: 0o640}
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
			o.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
			return o.Run()
		},
	}
	f := c.Flags()
	f.StringVar(&o.ConfigFile, "cloud-config-file-path", "/tmp/cloud-config/cloud.conf", "`file` with the configuration")
	f.StringVar(&o.OutputFile, "output-file-path", "/tmp/merged-cloud-config/cloud.conf", "`file` that is written: the configuration with credentials")
	f.StringVar(&o.Credentials, "creds-path", "/etc/azure/credentials", "`folder` with the keys of the Secret")
	f.BoolVar(&o.DisableIdentityExtension, "disable-identity-extension-auth", false, "turn off the identity of the machine where the configuration turns it on")
	f.Var(&o.WorkloadIdentity, "enable-azure-workload-identity", "whether workload identity may be used: true, false, or nothing: as the Secret has it")
	f.Var((*mode)(&o.Mode), "output-file-mode", "`mode` of the file that is written, octal; nothing for others")
	return c
}

// String, Set and Type make it a flag.
func (i *Identity) String() string { return string(*i) }

func (i *Identity) Set(value string) error {
	if value == "" {
		*i = IdentityAuto
		return nil
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		return fmt.Errorf("want true or false")
	}
	*i = Identity(strconv.FormatBool(on))
	return nil
}

func (i *Identity) Type() string { return "bool" }

type mode fs.FileMode

func (m *mode) String() string { return fmt.Sprintf("%04o", uint32(*m)) }

func (m *mode) Set(value string) error {
	n, err := strconv.ParseUint(value, 8, 32)
	if err != nil || n > 0o777 || n&0o007 != 0 || n&0o400 == 0 {
		return fmt.Errorf("want a mode such as 0640 that the user can read and others cannot")
	}
	*m = mode(n)
	return nil
}

func (m *mode) Type() string { return "mode" }
