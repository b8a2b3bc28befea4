// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/IBM/go-sdk-core/v5/core"
	"github.com/IBM/vpc-go-sdk/vpcv1"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/keylock"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// apiVersion is the date of the API's behaviour that this code was written
	// for.
	apiVersion = "2026-04-07"
	retries    = 4
	longestGap = 10 * time.Second
)

// Provider makes VMs in one VPC. Several processes may have one for the same
// VPC at a time.
type Provider struct {
	cfg       Config
	api       *vpcv1.VpcV1
	transport *http.Transport
	life      *lifetime
	locks     keylock.Locks
	wait      poll.Pace
	memory    memory
}

// memory is what does not change, or seldom.
type memory struct {
	turn     chan struct{} // held by whoever reads or fills the rest
	profiles []profile
	until    time.Time
	images   sync.Map // architectures by image id
	groups   sync.Map // security groups by cluster
	home     sync.Map // where the first subnet is, by its id
}

var (
	_ provider.Provider           = (*Provider)(nil)
	_ provider.Lister             = (*Provider)(nil)
	_ provider.Getter             = (*Provider)(nil)
	_ provider.PowerController    = (*Provider)(nil)
	_ provider.InstanceTypeLister = (*Provider)(nil)
	_ provider.ImageImporter      = (*Provider)(nil)
)

// New checks cfg. It asks nobody: a cloud that is out of reach for a while must
// not keep this process from starting. ConfigVerifier asks.
func New(cfg Config) (*Provider, error) {
	transport, err := cfg.transport()
	if err := errors.Join(cfg.validate(), err); err != nil {
		return nil, err
	}
	life := &lifetime{}
	inner, err := cfg.inner(&http.Client{Transport: &bound{transport, life}})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	version := apiVersion
	api, err := vpcv1.NewVpcV1(&vpcv1.VpcV1Options{URL: cfg.service(), Authenticator: &core.NoAuthAuthenticator{}, Version: &version})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	api.Service.SetHTTPClient(&http.Client{
		Transport: &signer{transport, inner}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	api.EnableRetries(retries, longestGap)
	if retrying, ok := api.Service.Client.Transport.(*retryablehttp.RoundTripper); ok {
		retrying.Client.CheckRetry = retryPolicy
	}
	return &Provider{
		cfg: cfg, api: api, transport: transport, life: life, memory: memory{turn: make(chan struct{}, 1)},
		wait: poll.Pace{First: 250 * time.Millisecond, Max: 2 * time.Second},
	}, nil
}

// Teardown closes connections; VMs run on.
func (p *Provider) Teardown() error {
	p.life.close()
	p.transport.CloseIdleConnections()
	return nil
}

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (*provider.Instance, error) {
	existing, err := p.existing(ctx, instanceID)
	if err != nil {
		return nil, fmt.Errorf("get instance: %w", classify(err))
	}
	tags, err := p.tagsOf(ctx, existing)
	if err != nil {
		return nil, fmt.Errorf("get instance: its boot volume: %w", classify(err))
	}
	if tags == nil {
		return nil, fmt.Errorf("get instance: %w", p.absent(instanceID))
	}
	return instanceOf(existing, tags), nil
}

func (p *Provider) absent(id string) error {
	return fmt.Errorf("%w: no instance %q in region %s", provider.ErrNotFound, id, p.cfg.region())
}

// existing returns an instance with a name of ours.
func (p *Provider) existing(ctx context.Context, id string) (*vpcv1.Instance, error) {
	if !identifier.MatchString(id) {
		return nil, p.absent(id)
	}
	existing, err := p.getInstance(ctx, id)
	if err != nil {
		return nil, err
	}
	if existing == nil || !ownName.MatchString(value(existing.Name)) {
		return nil, p.absent(id)
	}
	return existing, nil
}

// getInstance returns nil for what does not exist.
func (p *Provider) getInstance(ctx context.Context, id string) (*vpcv1.Instance, error) {
	instance, reply, err := p.api.GetInstanceWithContext(ctx, &vpcv1.GetInstanceOptions{ID: &id})
	if err = refused(reply, err); isStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	return instance, err
}

// tagsOf reads the owner tags at the boot volume; nil when it has none of ours.
func (p *Provider) tagsOf(ctx context.Context, i *vpcv1.Instance) (map[string]string, error) {
	if i.BootVolumeAttachment == nil || i.BootVolumeAttachment.Volume == nil {
		return nil, nil
	}
	volume, reply, err := p.api.GetVolumeWithContext(ctx, &vpcv1.GetVolumeOptions{ID: i.BootVolumeAttachment.Volume.ID})
	if err = refused(reply, err); isStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return tagsOf(volume.UserTags), nil
}

// value reads a field that may be missing.
func value[V any](field *V) V {
	if field == nil {
		var none V
		return none
	}
	return *field
}
