// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
)

// clients are the services, with a token that renews itself.
type clients struct {
	compute, network, image *gophercloud.ServiceClient
	project                 string // id
	minor                   int    // of the Compute API's microversion
}

// connection logs in when it is first needed.
type connection struct {
	cfg  Config
	http *http.Client
	// turn is held while somebody logs in.
	turn   chan struct{}
	opened *clients
}

func newConnection(cfg Config) (*connection, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, bad("os-cacert", "%v", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, bad("os-cacert", "%s has no certificate in PEM", cfg.CAFile)
		}
		transport.TLSClientConfig.RootCAs = roots
	}
	return &connection{cfg: cfg, http: &http.Client{Transport: transport}, turn: make(chan struct{}, 1)}, nil
}

func (c *connection) close() { c.http.CloseIdleConnections() }

// open answers clients with a token.
func (c *connection) open(ctx context.Context) (*clients, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c.opened != nil {
		return c.opened, nil
	}
	opened, err := c.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("log in to OpenStack (%s): %w", c.source(), err)
	}
	c.opened = opened
	return opened, nil
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
	timer := time.NewTimer(throttlePause << retries)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return err
	}
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
	if where.Region == "" {
		where.Region = endpoints.Region
	}
	if tlsConfig != nil && c.cfg.CAFile == "" {
		c.http.Transport.(*http.Transport).TLSClientConfig = tlsConfig
	}
	return auth, where, nil
}

func services(p *gophercloud.ProviderClient, where gophercloud.EndpointOpts) (*clients, error) {
	made := &clients{project: projectOf(p)}
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
