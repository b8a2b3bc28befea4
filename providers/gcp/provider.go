// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/cached"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/keylock"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Provider makes VMs in the zones of one project. Several processes may have
// one for the same project at a time.
type Provider struct {
	cfg       Config
	api       *client
	catalogue cached.Values[[]provider.InstanceType]
	locks     keylock.Locks
	// wait is how often it looks whether something is done.
	wait poll.Pace
	// remembered is how long a lack of capacity counts as news.
	remembered time.Duration
}

// New checks cfg. It asks nobody: a cloud that is out of reach for a while must
// not keep this process from starting. ConfigVerifier asks.
func New(cfg Config) (*Provider, error) {
	data, flagName, err := cfg.credentials()
	if err == nil && data != nil {
		_, err = checkCredentials(data, flagName)
	}
	if err := errors.Join(cfg.validate(), err); err != nil {
		return nil, err
	}
	api, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	return &Provider{
		cfg: cfg, api: api,
		wait: poll.Pace{First: 150 * time.Millisecond, Max: 2 * time.Second}, remembered: remembered,
	}, nil
}

// HasCapability implements provider.Limited: a VM that is stopped loses its external
// address, and an instance that is reached by it must keep its addresses.
func (p *Provider) HasCapability(c provider.Capability) bool {
	return c != provider.CapabilityPower || !p.cfg.UsePublicIP
}

// Teardown closes connections; VMs run on.
func (p *Provider) Teardown() error {
	p.api.close()
	return nil
}

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (found *provider.Instance, err error) {
	defer explain(&err, "get instance")
	existing, err := p.existing(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	return existing.answer(p.cfg.UsePublicIP), nil
}

// existing returns an instance of ours.
func (p *Provider) existing(ctx context.Context, id string) (*instance, error) {
	at, ok := parseID(id)
	if !ok {
		return nil, fmt.Errorf("%w: no instance %q: ids are ZONE/NAME", provider.ErrNotFound, id)
	}
	existing, err := p.getInstance(ctx, at)
	if err != nil {
		return nil, err
	}
	if existing == nil {
		if _, err := p.pending(ctx, at); err != nil {
			return nil, err // not even the project is there
		}
	}
	if existing == nil || tagsOf(existing.Description) == nil {
		return nil, fmt.Errorf("%w: no instance %s in project %s", provider.ErrNotFound, id, p.cfg.Project)
	}
	return existing, nil
}

// getInstance returns nil for what does not exist.
func (p *Provider) getInstance(ctx context.Context, at location) (*instance, error) {
	var result instance
	err := p.api.get(ctx, instancePath(at), url.Values{"fields": {instanceFields}}, &result)
	switch {
	case failure.HasStatus(err, http.StatusNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &result, nil
}

// instanceFields leaves out the metadata, which holds the user-data.
const instanceFields = "name,id,description,zone,machineType,status,creationTimestamp,networkInterfaces(networkIP,accessConfigs(natIP))"

func instancePath(at location) string { return "zones/" + at.zone + "/instances/" + at.name }
