// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"time"

	lv "github.com/digitalocean/go-libvirt"

	"github.com/outrigger/outrigger/internal/nocloud"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

const (
	// undoWait is how long the removal of what a failed creation left may
	// take. The caller's context may have ended already.
	undoWait = 30 * time.Second
	// otherWait is how long another process, which makes the same instance
	// with other user-data, may take before it counts as dead.
	otherWait = 10 * time.Second
	otherPoll = 100 * time.Millisecond
)

// CreateInstance implements provider.Provider. A key that is taken returns its
// instance whatever the other arguments say.
func (p *Provider) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	id := instanceID(sandboxID)
	unlock, err := p.locks.Take(ctx, id)
	if err != nil {
		return nil, classify(fmt.Errorf("create instance: %w", err))
	}
	defer unlock()
	r, err := p.findOrMake(ctx, podName, sandboxID, cloudConfig, spec)
	if err != nil {
		err = classify(fmt.Errorf("create instance %s: %w", id, err))
	}
	if r == nil {
		return nil, err
	}
	return r.answer(), err
}

// findOrMake returns a record, also beside an error, when the caller has
// something to delete.
func (p *Provider) findOrMake(ctx context.Context, podName, key string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*record, error) {
	existing, err := p.load(ctx, instanceID(key))
	if err != nil || existing != nil && existing.Phase == phaseReady {
		return existing, err
	}
	pl, err := p.plan(ctx, podName, key, spec)
	if err != nil {
		return nil, err
	}
	if pl.userData, err = userdata.Generate(cloudConfig); err != nil {
		return nil, err
	}
	pl.Seed = volumesOf(pl.id) + seedVolume(pl.userData)
	if existing != nil && existing.Seed != pl.Seed {
		if existing, err = p.awaitOther(ctx, existing); err != nil || existing != nil {
			return existing, err
		}
	}
	if existing != nil {
		// An earlier attempt's, or another process's that is at it now. Every
		// step can be taken twice.
		pl.Name, pl.Created = existing.Name, existing.Created
		return pl.record, p.build(ctx, pl)
	}
	err = p.claim(ctx, pl)
	if err == nil {
		err = p.build(ctx, pl)
	}
	if err != nil {
		return p.undo(ctx, pl.record, err)
	}
	return pl.record, nil
}

// awaitOther waits for the process that makes an instance. It returns the
// instance, or nil when it is gone: by its maker or, if that is dead, by us.
func (p *Provider) awaitOther(ctx context.Context, r *record) (*record, error) {
	for end := time.Now().Add(otherWait); time.Now().Before(end); {
		if err := poll.Sleep(ctx, otherPoll); err != nil {
			return nil, err
		}
		existing, err := p.load(ctx, r.id)
		if err != nil || existing == nil || existing.Phase == phaseReady {
			return existing, err
		}
	}
	logger().Info("removing a partly created instance", "instance", r.id, "sandbox", r.Key)
	if err := p.discard(ctx, r); err != nil {
		return r, fmt.Errorf("remove the partly created instance: %w", err)
	}
	return nil, nil
}

// claim defines the domain, before anything else exists. Its name is for
// humans; where another instance has it, it becomes longer.
func (p *Provider) claim(ctx context.Context, pl *plan) error {
	err := p.define(ctx, pl)
	if err == nil {
		return nil
	}
	if other, lookErr := p.hv.domainNamed(ctx, pl.Name); lookErr == nil && other != pl.id {
		pl.Name = pl.Name + "-" + pl.id
		return p.define(ctx, pl)
	}
	return err
}

func (p *Provider) define(ctx context.Context, pl *plan) error {
	text, err := pl.domainXML()
	if err != nil {
		return err
	}
	return p.hv.define(ctx, text)
}

func (p *Provider) undo(ctx context.Context, r *record, cause error) (*record, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	if err := p.discard(ctx, r); err != nil {
		return r, errors.Join(classify(cause), fmt.Errorf("remove what was made: %w", err))
	}
	return nil, cause
}

// build makes everything that a planned instance consists of besides its
// domain, and starts it.
func (p *Provider) build(ctx context.Context, pl *plan) error {
	var held []*reservation
	steps := []struct {
		name string
		do   func() error
	}{
		{"reserve addresses", func() error {
			for i, name := range pl.Networks {
				r, err := p.reserve(ctx, name, macOf(pl.id, i))
				if err != nil {
					return err
				}
				held = append(held, r)
			}
			return nil
		}},
		{"make the root volume", func() error { return p.makeRoot(ctx, pl) }},
		{"make the seed volume", func() error { return p.makeSeed(ctx, pl, held) }},
		{"make the console volume", func() error {
			return p.makeFile(ctx, pl.Pool, volumesOf(pl.id)+consoleVolume, []byte(consoleHeader))
		}},
		{"start the domain", func() error { return p.blame(pl.host, p.run(ctx, pl.id)) }},
		{"wait for an address", func() (err error) {
			pl.Addrs, err = p.awaitAddresses(ctx, pl.id, held)
			return err
		}},
		{"record", func() error { return p.markReady(ctx, pl.record) }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func (p *Provider) makeSeed(ctx context.Context, pl *plan, held []*reservation) error {
	image, err := nocloud.Seed{
		InstanceID: pl.id, Hostname: pl.Name, UserData: pl.userData, Network: networkConfig(pl.id, held),
	}.Image()
	if err != nil {
		return err
	}
	return p.makeFile(ctx, pl.Pool, pl.Seed, image)
}

func (p *Provider) markReady(ctx context.Context, r *record) error {
	r.Phase = phaseReady
	text, err := r.element()
	if err != nil {
		return err
	}
	return p.hv.setMetadata(ctx, r.id, text)
}

// DeleteInstance implements provider.Provider. It also removes what is left of
// an instance without a domain.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) error {
	if !isID(instanceID) {
		return nil // nothing of ours has such an id
	}
	unlock, err := p.locks.Take(ctx, instanceID)
	if err != nil {
		return classify(fmt.Errorf("delete instance %s: %w", instanceID, err))
	}
	defer unlock()
	r, err := p.load(ctx, instanceID)
	if err == nil {
		if r == nil {
			r = &record{id: instanceID}
		}
		err = p.discard(ctx, r)
	}
	if err != nil {
		return classify(fmt.Errorf("delete instance %s: %w", instanceID, err))
	}
	return nil
}

// discard removes an instance in whatever state it is. The domain goes last:
// until then the instance can be listed.
func (p *Provider) discard(ctx context.Context, r *record) error {
	if err := p.stop(ctx, r.id); err != nil {
		return err
	}
	pool, networks := r.Pool, r.Networks
	if pool == "" {
		pool, networks = p.cfg.Pool, p.networks()
	}
	if err := p.removeVolumes(ctx, pool, r.id); err != nil {
		return err
	}
	for i, name := range networks {
		if err := p.release(ctx, name, macOf(r.id, i)); err != nil {
			return err
		}
	}
	err := p.hv.undefine(ctx, r.id)
	if isCode(err, lv.ErrNoDomain) {
		return nil
	}
	return err
}
