// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"golang.org/x/crypto/ssh"

	"github.com/outrigger/outrigger/provider"
)

// newCredential returns a credential of the kind that is configured, never a
// chain that tries one after the other. Tokens are asked for when they are
// needed and again before they expire.
func newCredential(c Config, options azcore.ClientOptions) (azcore.TokenCredential, error) {
	var credential azcore.TokenCredential
	var err error
	// The authority is configured, so nobody needs to ask Microsoft's public
	// one whether it is genuine.
	switch c.credential() {
	case credentialSecret:
		credential, err = azidentity.NewClientSecretCredential(c.TenantID, c.ClientID, c.ClientSecret.Reveal(),
			&azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true})
	case credentialManaged:
		o := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
		if c.ClientID != "" {
			o.ID = azidentity.ClientID(c.ClientID)
		}
		credential, err = azidentity.NewManagedIdentityCredential(o)
	default:
		credential, err = azidentity.NewClientAssertionCredential(c.TenantID, c.ClientID, assertion(c.TokenFile),
			&azidentity.ClientAssertionCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true})
	}
	if err != nil {
		return nil, fmt.Errorf("%w: credentials: %w", provider.ErrInvalidArgument, err)
	}
	return credential, nil
}

// assertion reads the service account token each time: the kubelet replaces it
// before it expires.
func assertion(file string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", wrong("azure-federated-token-file", "%v", err)
		}
		token := strings.TrimSpace(string(data))
		if token == "" {
			return "", wrong("azure-federated-token-file", "%s is empty", file)
		}
		return token, nil
	}
}

// environment returns the endpoints of the Azure cloud.
func (c Config) environment() cloud.Configuration {
	base := map[string]cloud.Configuration{
		"AzureUSGovernmentCloud": cloud.AzureGovernment, "AzureChinaCloud": cloud.AzureChina,
	}[c.Environment]
	if base.ActiveDirectoryAuthorityHost == "" {
		base = cloud.AzurePublic
	}
	manager := base.Services[cloud.ResourceManager]
	if c.Endpoint != "" {
		manager.Endpoint = strings.TrimSuffix(c.Endpoint, "/")
	}
	authority := base.ActiveDirectoryAuthorityHost
	if c.AuthorityHost != "" {
		authority = c.AuthorityHost
	}
	return cloud.Configuration{
		ActiveDirectoryAuthorityHost: authority,
		Services:                     map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: manager},
	}
}

// publicKey returns the key of the administrator account, which Azure wants.
// Where none is configured it is one whose private half nobody has.
func (p *Provider) publicKey(ctx context.Context) (string, error) {
	return p.key.Get(ctx, "", func() (string, time.Time, error) {
		key, err := loadKey(p.cfg.SSHKeyPath)
		return key, time.Time{}, err
	})
}

func loadKey(file string) (string, error) {
	if file == "" {
		return throwAwayKey()
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", wrong("ssh-key-path", "%v", err)
	}
	if _, _, _, _, err := ssh.ParseAuthorizedKey(data); err != nil {
		return "", wrong("ssh-key-path", "%s is not a public key: %v", file, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// throwAwayKey is RSA, which Azure takes from everybody. The private half is
// kept by nobody, so that one is enough for a process.
var throwAwayKey = sync.OnceValues(func() (string, error) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", fmt.Errorf("make an SSH key: %w", err)
	}
	public, err := ssh.NewPublicKey(&private.PublicKey)
	if err != nil {
		return "", fmt.Errorf("make an SSH key: %w", err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public))), nil
})
