// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"github.com/gophercloud/gophercloud/v2/openstack/utils"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/cached"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

// clients are the services, with a token that renews itself.
type clients struct {
	compute, network, image *gophercloud.ServiceClient
	project                 string // id
	// where is how the catalogue is read for services that not every cloud has.
	where gophercloud.EndpointOpts
	minor int // of the Compute API's microversion
}

// connection logs in when it is first needed.
type connection struct {
	cfg    Config
	http   *http.Client
	opened cached.Values[*clients]
}

func newConnection(cfg Config) (*connection, error) {
	transport, err := rest.Transport("")
	if err != nil {
		return nil, err
	}
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		if transport.TLSClientConfig.RootCAs, err = rest.RootsOf(cfg.CAFile); err != nil {
			return nil, bad("os-cacert", "%v", err)
		}
	}
	return &connection{cfg: cfg, http: &http.Client{Transport: transport}}, nil
}

// open returns clients with a token.
func (c *connection) open(ctx context.Context) (*clients, error) {
	return c.opened.Get(ctx, "", func() (*clients, time.Time, error) {
		opened, err := c.connect(ctx)
		if err != nil {
			err = fmt.Errorf("log in to OpenStack (%s): %w", c.source(), err)
		}
		return opened, time.Time{}, err
	})
}

// source returns which settings the credentials come from.
func (c *connection) source() string {
	switch {
	case c.cfg.AuthURL == "":
		return fmt.Sprintf("-os-cloud (OS_CLOUD) %s", c.cfg.Cloud)
	case c.cfg.AppCredID != "":
		return "OS_APPLICATION_CREDENTIAL_ID and OS_APPLICATION_CREDENTIAL_SECRET at OS_AUTH_URL " + c.cfg.AuthURL
	}
	return fmt.Sprintf("OS_USERNAME %s and OS_PASSWORD at OS_AUTH_URL %s", c.cfg.User, c.cfg.AuthURL)
}

func (c *connection) connect(ctx context.Context) (*clients, error) {
	auth, where, err := c.credentials()
	if err != nil {
		return nil, err
	}
	auth.AllowReauth = true
	p, err := openstack.NewClient(auth.IdentityEndpoint)
	if err != nil {
		return nil, bad("os-auth-url", "%v", err)
	}
	p.HTTPClient = *c.http
	p.UserAgent.Prepend("outrigger")
	p.MaxBackoffRetries = throttleRetries
	p.RetryBackoffFunc = backOff
	if err := openstack.Authenticate(ctx, p, auth); err != nil {
		if class := loginClass(err); class != nil {
			err = fmt.Errorf("%w: %w", class, err)
		}
		return nil, err
	}
	made, err := services(p, where)
	if err != nil {
		return nil, err
	}
	return made, made.negotiate(ctx)
}

// throttleRetries is how often a call that Nova or Neutron throttles is
// repeated here.
const throttleRetries = 4

// backOff waits before a throttled call is repeated.
func backOff(ctx context.Context, _ *gophercloud.ErrUnexpectedResponseCode, err error, retries uint) error {
	if poll.Sleep(ctx, throttlePause<<retries) != nil {
		return err
	}
	return nil
}

const throttlePause = 200 * time.Millisecond

// credentials returns explicit ones only: nothing is looked for anywhere else.
func (c *connection) credentials() (gophercloud.AuthOptions, gophercloud.EndpointOpts, error) {
	where := gophercloud.EndpointOpts{Region: c.cfg.Region, Availability: gophercloud.Availability(c.cfg.Interface)}
	if c.cfg.AuthURL == "" {
		return c.fromClouds(where)
	}
	auth := gophercloud.AuthOptions{IdentityEndpoint: c.cfg.AuthURL}
	if c.cfg.AppCredID != "" {
		auth.ApplicationCredentialID, auth.ApplicationCredentialSecret = c.cfg.AppCredID, c.cfg.AppCredSecret.Reveal()
		return auth, where, nil
	}
	auth.Username, auth.Password, auth.DomainName = c.cfg.User, c.cfg.Password.Reveal(), c.cfg.UserDomain
	auth.Scope = &gophercloud.AuthScope{ProjectID: c.cfg.ProjectID}
	if c.cfg.ProjectID == "" {
		auth.Scope = &gophercloud.AuthScope{ProjectName: c.cfg.Project, DomainName: c.cfg.ProjectDomain}
	}
	return auth, where, nil
}

func (c *connection) fromClouds(where gophercloud.EndpointOpts) (gophercloud.AuthOptions, gophercloud.EndpointOpts, error) {
	options := []clouds.ParseOption{clouds.WithCloudName(c.cfg.Cloud)}
	if c.cfg.CloudsFile != "" {
		options = append(options, clouds.WithLocations(c.cfg.CloudsFile))
	}
	auth, endpoints, tlsConfig, err := clouds.Parse(options...)
	if err != nil {
		return auth, where, bad("os-cloud", "%v", err)
	}
	where.Region = cmp.Or(where.Region, endpoints.Region)
	if tlsConfig != nil && c.cfg.CAFile == "" {
		c.http.Transport.(*http.Transport).TLSClientConfig = tlsConfig
	}
	return auth, where, nil
}

func services(p *gophercloud.ProviderClient, where gophercloud.EndpointOpts) (*clients, error) {
	made := &clients{project: projectOf(p), where: where}
	for _, service := range []struct {
		into **gophercloud.ServiceClient
		make func(*gophercloud.ProviderClient, gophercloud.EndpointOpts) (*gophercloud.ServiceClient, error)
		name string
	}{
		{&made.compute, openstack.NewComputeV2, "compute"},
		{&made.network, openstack.NewNetworkV2, "network"},
		{&made.image, openstack.NewImageV2, "image"},
	} {
		client, err := service.make(p, where)
		if err != nil {
			return nil, fmt.Errorf("%s service in region %q (-os-region-name, OS_REGION_NAME), interface %s: %w", service.name, where.Region, where.Availability, err)
		}
		*service.into = client
	}
	return made, nil
}

// extendInUse is the microversion from which volumes that are in use can be made larger
// (Block Storage API, "REST API Version History"). Each OpenStack since Pike has it.
const extendInUse = "3.42"

// block returns the client of Cinder.
func (c *connection) block(ctx context.Context) (*gophercloud.ServiceClient, error) {
	opened, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	client, err := openstack.NewBlockStorageV3(opened.compute.ProviderClient, opened.where)
	if err != nil {
		return nil, fmt.Errorf("block-storage service (Cinder), which disks need, in region %q (-os-region-name, OS_REGION_NAME): %w", opened.where.Region, err)
	}
	client.Microversion = extendInUse
	return client, nil
}

// projectOf returns the project that the token is for.
func projectOf(p *gophercloud.ProviderClient) string {
	result, ok := p.GetAuthResult().(interface {
		ExtractProject() (*tokens.Project, error)
	})
	if !ok {
		return ""
	}
	project, err := result.ExtractProject()
	if err != nil || project == nil {
		return ""
	}
	return project.ID
}

// Microversions of the Compute API, the minor number of 2.x ("REST API Version
// History"). Without one Nova speaks 2.1.
const (
	flavorEmbedded = 47 // a server shows the name of its flavor
	volumeTypes    = 67 // a root volume can have a type
	// wanted is the newest that this provider knows.
	wanted = volumeTypes
)

// negotiate asks Nova which microversions it speaks, and takes the newest that
// both know. Whoever needs one that Nova lacks is refused where it is needed.
func (c *clients) negotiate(ctx context.Context) error {
	root, err := utils.BaseVersionedEndpoint(c.compute.Endpoint)
	if err != nil {
		return fmt.Errorf("%w: compute endpoint %s: %w", provider.ErrInvalidArgument, c.compute.Endpoint, err)
	}
	var reply struct {
		Version struct {
			Newest string `json:"version"`
			Oldest string `json:"min_version"`
		} `json:"version"`
	}
	_, err = c.compute.ProviderClient.Request(ctx, "GET", root, &gophercloud.RequestOpts{JSONResponse: &reply, OkCodes: []int{200}})
	if err != nil {
		return fmt.Errorf("ask for the versions of the compute service: %w", err)
	}
	c.minor = min(minorOf(reply.Version.Newest), wanted)
	if oldest := minorOf(reply.Version.Oldest); oldest > c.minor && oldest > 0 {
		return fmt.Errorf("%w: the compute service at %s speaks microversions from 2.%d on, this provider up to 2.%d", provider.ErrInvalidArgument, root, oldest, wanted)
	}
	if c.minor > 0 {
		c.compute.Microversion = "2." + strconv.Itoa(c.minor)
	}
	return nil
}

// minorOf returns 0 for what is not a microversion of 2.
func minorOf(version string) int {
	rest, ok := strings.CutPrefix(version, "2.")
	minor, err := strconv.Atoi(rest)
	if !ok || err != nil {
		return 0
	}
	return minor
}

// checkVolumeType returns an error for a volume type if Nova is too old for it.
func (c *clients) checkVolumeType(name string) error {
	if name == "" || c.minor >= volumeTypes {
		return nil
	}
	return fmt.Errorf("%w: -root-volume-type (OPENSTACK_ROOT_VOLUME_TYPE) %s: the compute service speaks microversions up to 2.%d, and a type of the root volume needs 2.%d; leave it out, and Cinder chooses its default type",
		provider.ErrInvalidArgument, name, c.minor, volumeTypes)
}
