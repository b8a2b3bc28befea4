// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/IBM/go-sdk-core/v5/core"
	"github.com/IBM/vpc-go-sdk/vpcv1"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/cached"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/keylock"
	"github.com/outrigger/outrigger/provider/kit/lifetime"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/provider/kit/rest"
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
	life      *lifetime.Lifetime
	locks     keylock.Locks
	wait      poll.Pace
	// known is what does not change, or seldom.
	known struct {
		profiles cached.Values[[]profile]
		images   cached.Values[string]   // architectures by image id
		groups   cached.Values[[]string] // security groups of the cluster
		home     cached.Values[home]     // where the first subnet is
	}
}

// New checks cfg. It asks nobody: a cloud that is out of reach for a while must
// not keep this process from starting. ConfigVerifier asks.
func New(cfg Config) (*Provider, error) {
	transport, err := rest.Transport(cfg.CAFile)
	if err != nil {
		err = bad("ibmcloud-ca-file", "%v", err)
	}
	if err := errors.Join(cfg.validate(), err); err != nil {
		return nil, err
	}
	life := &lifetime.Lifetime{}
	inner, err := cfg.inner(&http.Client{Transport: &bound{transport, life}})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	api, err := vpcv1.NewVpcV1(&vpcv1.VpcV1Options{URL: cfg.service(), Authenticator: &core.NoAuthAuthenticator{}, Version: new(apiVersion)})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	api.Service.SetHTTPClient(rest.HTTP(rest.Direct{RoundTripper: &signer{transport, inner}}, 0))
	api.EnableRetries(retries, longestGap)
	if retrying, ok := api.Service.Client.Transport.(*retryablehttp.RoundTripper); ok {
		retrying.Client.CheckRetry = retryPolicy
	}
	return &Provider{
		cfg: cfg, api: api, transport: transport, life: life,
		wait: poll.Pace{First: 250 * time.Millisecond, Max: 2 * time.Second},
	}, nil
}

// Teardown closes connections; VMs run on.
func (p *Provider) Teardown() error {
	p.life.End()
	p.transport.CloseIdleConnections()
	return nil
}

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (found *provider.Instance, err error) {
	defer explain(&err, "get instance")
	existing, err := p.existing(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	tags, err := p.tagsOf(ctx, existing)
	switch {
	case err != nil:
		return nil, fmt.Errorf("its boot volume: %w", err)
	case tags == nil:
		return nil, p.absent(instanceID)
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
	if existing == nil || !names.IsHashed(value(existing.Name)) {
		return nil, p.absent(id)
	}
	return existing, nil
}

// getInstance returns nil for what does not exist.
func (p *Provider) getInstance(ctx context.Context, id string) (*vpcv1.Instance, error) {
	instance, err := ask(ctx, p.api.GetInstanceWithContext, vpcv1.GetInstanceOptions{ID: &id})
	if failure.HasStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	return instance, err
}

// tagsOf reads the owner tags at the boot volume; nil when it has none of ours.
func (p *Provider) tagsOf(ctx context.Context, i *vpcv1.Instance) (map[string]string, error) {
	if i.BootVolumeAttachment == nil || i.BootVolumeAttachment.Volume == nil {
		return nil, nil
	}
	volume, err := ask(ctx, p.api.GetVolumeWithContext, vpcv1.GetVolumeOptions{ID: i.BootVolumeAttachment.Volume.ID})
	switch {
	case failure.HasStatus(err, http.StatusNotFound):
		return nil, nil
	case err != nil:
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
