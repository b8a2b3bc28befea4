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
	"strings"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/jsonobject"
)

// Identity selects whether workload identity may be used.
type Identity string

const (
	// IdentityAuto uses it when the Secret has a token file.
	IdentityAuto Identity = ""
	// IdentityOn is the same, said aloud: a Secret without a token file has the
	// client's secret.
	IdentityOn Identity = "true"
	// IdentityOff needs the client's secret.
	IdentityOff Identity = "false"
)

// Options are what the injector needs.
type Options struct {
	// ConfigFile is the configuration, OutputFile what is made of it.
	ConfigFile, OutputFile string
	// Credentials is the folder with the keys of the Secret.
	Credentials string
	// Mode is that of OutputFile; nobody but its user and group may read it.
	Mode fs.FileMode
	// DisableIdentityExtension turns off the identity of the machine, which
	// would win over the credentials.
	DisableIdentityExtension bool
	WorkloadIdentity         Identity
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
	config, err := readConfig(o.ConfigFile)
	if err != nil {
		return fmt.Errorf("couldn't read cloud config from file: %w", err)
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
	if c.tokenFile != "" && o.WorkloadIdentity == IdentityOff {
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

func readConfig(path string) (jsonobject.Object, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	config, err := jsonobject.Parse(string(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
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
	f, err := os.CreateTemp(filepath.Dir(o.OutputFile), ".cloud.conf-*") // for its user alone
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone once it is renamed
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(o.Mode), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), o.OutputFile)
}
