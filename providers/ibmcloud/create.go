// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/provider/kit/places"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// maxCandidates bounds how many pairs of profile and zone one creation tries.
const maxCandidates = 24

// CreateInstance implements provider.Provider. A key that is taken returns its
// instance whatever the other arguments say.
func (p *Provider) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (made *provider.Instance, err error) {
	r := newRequest(podName, sandboxID, spec)
	defer explain(&err, "create instance %s", r.name)
	unlock, err := p.locks.Take(ctx, r.cluster+"/"+r.key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return p.findOrMake(ctx, r, cloudConfig)
}

// findOrMake returns an instance, also beside an error, when the caller may
// have something to delete.
func (p *Provider) findOrMake(ctx context.Context, r *request, cloudConfig cloudinit.CloudConfigGenerator) (*provider.Instance, error) {
	id, err := p.find(ctx, r)
	if err != nil {
		return nil, err
	}
	if id != "" {
		existing, err := p.settle(ctx, id, false)
		switch {
		case err == nil && existing != nil:
			return instanceOf(existing, r.tags), nil
		case err != nil && !errors.Is(err, errFailed):
			return &provider.Instance{ID: id, Name: r.name}, err
		}
		// Gone, or failed for good: made again, once the name is free.
	}
	candidates, err := p.plan(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.userTags, err = p.ownerTags(r); err != nil {
		return nil, err
	}
	if err := r.read(cloudConfig); err != nil {
		return nil, err
	}
	return p.tryCandidates(ctx, r, candidates)
}

// find returns the id of the key's instance, which an earlier attempt has made.
func (p *Provider) find(ctx context.Context, r *request) (string, error) {
	id := ""
	err := p.volumes(ctx, provider.TagKey+":"+r.key, func(v *vpcv1.Volume) {
		tags := tagsOf(v.UserTags)
		if isBoot(v) && tags[provider.TagKey] == r.key && tags[provider.TagCluster] == r.cluster {
			if owner := ownerOf(v); owner != nil && names.IsHashed(value(owner.Name)) {
				id = value(owner.ID)
			}
		}
	})
	return id, err
}

// tryCandidates tries the next zone or profile while the cloud has no capacity. The
// name keeps two processes from making the instance in two.
func (p *Provider) tryCandidates(ctx context.Context, r *request, candidates []candidate) (*provider.Instance, error) {
	return places.Try(candidates, places.NoCapacity, func(c candidate) (*provider.Instance, error) {
		made, err := p.makeIn(ctx, r, c)
		if err == nil {
			return instanceOf(made, r.tags), nil
		}
		err = fmt.Errorf("profile %s: %w", c, classify(err))
		if made != nil {
			return &provider.Instance{ID: value(made.ID), Name: value(made.Name)}, err
		}
		if places.NoCapacity(err) {
			logger().Info("no capacity", "instance", r.name, "type", c.Type.Name, "zone", c.Zone, "error", err)
		}
		return nil, err
	})
}

// maxRounds bounds how often a name is asked for that is taken by an instance
// which then turns out to be gone.
const maxRounds = 100

// makeIn makes the instance in one zone. With an error it returns an instance
// where one may be left.
func (p *Provider) makeIn(ctx context.Context, r *request, c candidate) (*vpcv1.Instance, error) {
	proto := p.prototype(r, c)
	unknown := &vpcv1.Instance{ID: new(byName + r.name), Name: &r.name}
	for range maxRounds {
		made, fresh, err := p.createOrFind(ctx, r, proto)
		switch {
		case err != nil && failure.Unsure(err):
			return unknown, err
		case err != nil:
			return nil, p.blame(err, c)
		case made != nil:
			settled, err := p.settle(ctx, value(made.ID), fresh)
			if errors.Is(err, errFailed) {
				return nil, err
			}
			if err != nil {
				return made, err
			}
			if settled != nil {
				return settled, nil
			}
		}
		if err := poll.Sleep(ctx, p.wait.First); err != nil {
			return unknown, err
		}
	}
	return unknown, fmt.Errorf("%w: the name is taken, and no instance has it", provider.ErrUnavailable)
}

// createOrFind creates the instance, or finds the one with its name; fresh reports
// which. It returns nil if the name is taken by something that is not listed.
func (p *Provider) createOrFind(ctx context.Context, r *request, proto *vpcv1.InstancePrototypeInstanceByImage) (made *vpcv1.Instance, fresh bool, err error) {
	made, err = ask(ctx, p.api.CreateInstanceWithContext, vpcv1.CreateInstanceOptions{InstancePrototype: proto})
	if err == nil || !isTaken(err) {
		return made, err == nil, classify(err)
	}
	made, err = p.named(ctx, r.name)
	return made, false, err
}

// named returns nil for a name that nobody has.
func (p *Provider) named(ctx context.Context, name string) (*vpcv1.Instance, error) {
	page, err := ask(ctx, p.api.ListInstancesWithContext, vpcv1.ListInstancesOptions{Name: &name})
	if err != nil || len(page.Instances) == 0 {
		return nil, classify(err)
	}
	return &page.Instances[0], nil
}

// blame names the settings that a refusal may be about.
func (p *Provider) blame(err error, c candidate) error {
	class := provider.Class(err)
	if class != provider.ErrInvalidArgument && class != provider.ErrNotFound {
		return err
	}
	return fmt.Errorf("image %s (-image-id), subnet %s (-primary-subnet-id), vpc %s (-vpc-id), or another id in the settings: %w",
		c.image, p.cfg.Subnets[c.at], c.home.vpc, err)
}

// errFailed marks an instance that has failed for good and is deleted.
var errFailed = errors.New("the cloud could not start it")

// absences is how often in a row an instance that was just made may be missing.
const absences = 8

// settle waits until the instance has its resources and its address, or is
// stopped. It returns nil when there is none (any more). One that has failed is
// deleted, which frees its name.
func (p *Provider) settle(ctx context.Context, id string, fresh bool) (*vpcv1.Instance, error) {
	var settled *vpcv1.Instance
	missing := 0
	err := p.wait.Until(ctx, func() (bool, error) {
		existing, err := p.getInstance(ctx, id)
		if err != nil {
			return false, err
		}
		if existing == nil {
			missing++
			return !fresh || missing > absences, nil
		}
		fresh = false
		if reason := failureOf(existing); reason != nil {
			if err := p.discard(ctx, id); err != nil {
				return false, fmt.Errorf("%w; and it cannot be deleted: %w", reason, err)
			}
			return false, fmt.Errorf("%w: %w", errFailed, reason)
		}
		if ready(existing) {
			settled = existing
		}
		return settled != nil, nil
	})
	return settled, classify(err)
}

// ready reports whether the cloud has found room for the instance.
func ready(i *vpcv1.Instance) bool {
	switch value(i.Status) {
	case "starting", "running", "restarting", "stopping":
		return addresses(i) != nil
	case "stopped":
		return true
	}
	return false
}
