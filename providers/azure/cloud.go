// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"
	"golang.org/x/crypto/ssh"

	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

// tempo is how long things may take; tests have their own.
type tempo struct {
	// ask is the interval of polling a VM that is being created or deleted.
	ask poll.Pace
	// retry is the SDK's.
	retry policy.RetryOptions
	// lag is how long a VM that Azure has accepted may not be shown.
	lag time.Duration
	// grace is how long a PUT continues after its caller's context ended, so
	// that its outcome is known.
	grace time.Duration
	// undo is how long the removal of what a failed creation left may take.
	undo time.Duration
	// abandoned is how long the maker of a VM that has failed may take to
	// remove it before it counts as dead.
	abandoned time.Duration
	// catalogue is how long the list of sizes is kept.
	catalogue time.Duration
}

// standard suits the real cloud: a VM has its address after some 5 s and runs
// after some 15 s.
var standard = tempo{
	ask:       poll.Pace{First: 500 * time.Millisecond, Max: 3 * time.Second},
	retry:     policy.RetryOptions{MaxRetries: 4, RetryDelay: time.Second, MaxRetryDelay: 30 * time.Second},
	lag:       30 * time.Second,
	grace:     5 * time.Second,
	undo:      20 * time.Second,
	abandoned: 2 * time.Minute,
	catalogue: time.Hour,
}

// clients are those of the services that the provider calls. The SDK's factories
// are not among them: they would link every client there is, and its models.
type clients struct {
	vms   *armcompute.VirtualMachinesClient
	disks *armcompute.DisksClient
	skus  *armcompute.ResourceSKUsClient
	usage *armcompute.UsageClient
	nics  *armnetwork.InterfacesClient
	ips   *armnetwork.PublicIPAddressesClient
	// arm is for what needs no client of its own.
	arm          *arm.Client
	subscription string
	// credential and options are for clients that are seldom needed.
	credential azcore.TokenCredential
	options    *arm.ClientOptions
	// http reads consoles, which are not at the resource manager.
	http *http.Client
}

// connect makes the clients; it sends nothing.
func connect(c Config, transport http.RoundTripper, t tempo) (*clients, error) {
	web := &http.Client{Transport: transport}
	options := policy.ClientOptions{Cloud: c.environment(), Transport: web, Retry: t.retry}
	options.Telemetry.ApplicationID = "outrigger"
	options.PerRetryPolicies = []policy.Policy{attempts{}}
	credential, err := newCredential(c, options)
	if err != nil {
		return nil, err
	}
	// Registering resource providers is the operator's affair and needs rights
	// at the subscription.
	armOptions := &arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true}
	all := &clients{subscription: c.SubscriptionID, credential: credential, options: armOptions, http: web}
	var errs [7]error
	all.arm, errs[0] = arm.NewClient("outrigger", release(), credential, armOptions)
	all.vms, errs[1] = armcompute.NewVirtualMachinesClient(c.SubscriptionID, credential, armOptions)
	all.disks, errs[2] = armcompute.NewDisksClient(c.SubscriptionID, credential, armOptions)
	all.skus, errs[3] = armcompute.NewResourceSKUsClient(c.SubscriptionID, credential, armOptions)
	all.usage, errs[4] = armcompute.NewUsageClient(c.SubscriptionID, credential, armOptions)
	all.nics, errs[5] = armnetwork.NewInterfacesClient(c.SubscriptionID, credential, armOptions)
	all.ips, errs[6] = armnetwork.NewPublicIPAddressesClient(c.SubscriptionID, credential, armOptions)
	return all, errors.Join(errs[:]...)
}

var semantic = regexp.MustCompile(`^v\d+\.\d+\.\d+`)

// release returns our version in the SDK's format, for the User-Agent.
func release() string {
	if match := semantic.FindString(version.Version); match != "" {
		return match
	}
	return "v0.0.0"
}

// attempts counts how often a PUT was sent: more than once, and the answer to
// the last does not tell what the others did. Tokens are asked for under the
// same context, with other methods.
type attempts struct{}

type attemptsKey struct{}

func (attempts) Do(r *policy.Request) (*http.Response, error) {
	if n, ok := r.Raw().Context().Value(attemptsKey{}).(*atomic.Int64); ok && r.Raw().Method == http.MethodPut {
		n.Add(1)
	}
	return r.Next()
}

// newTransport returns a transport for one provider, so that Teardown can close it.
func newTransport(caFile string) (*http.Transport, error) {
	transport, err := rest.Transport(caFile)
	if err != nil {
		return nil, wrong("azure-ca-file", "%v", err)
	}
	transport.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	transport.ResponseHeaderTimeout = 60 * time.Second
	return transport, nil
}

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

// url returns that of a resource of the resource manager.
func (c *clients) url(path, version string) string {
	return runtime.JoinPaths(c.arm.Endpoint(), path) + "?api-version=" + version
}

// get reads what is at a URL of the resource manager into out, unless that is nil.
func (c *clients) get(ctx context.Context, url string, out any) error {
	request, err := runtime.NewRequest(ctx, http.MethodGet, url)
	if err != nil {
		return err
	}
	response, err := c.arm.Pipeline().Do(request)
	switch {
	case err != nil:
		return err
	case !runtime.HasStatusCode(response, http.StatusOK):
		return runtime.NewResponseError(response)
	case out == nil:
		runtime.Drain(response)
		return nil
	}
	text, err := runtime.Payload(response)
	if err != nil {
		return err
	}
	return rest.Decode(bytes.NewReader(text), out)
}
