// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/google/uuid"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/places"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// maxCandidates limits how many pairs of type and zone one creation tries.
const maxCandidates = 24

// CreateInstance implements provider.Provider. For a key that has an instance it returns
// that instance, whatever the other arguments are.
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

// findOrMake returns the instance. With an error it also returns one if the caller may
// have to delete it.
func (p *Provider) findOrMake(ctx context.Context, r *request, cloudConfig cloudinit.CloudConfigGenerator) (*provider.Instance, error) {
	existing, err := p.find(ctx, r)
	if err != nil {
		return nil, err
	}
	if existing != nil {
		settled, err := p.settle(ctx, existing.location(), nil)
		if err != nil {
			return &provider.Instance{ID: existing.location().String(), Name: existing.Name}, err
		}
		if settled != nil {
			return settled.answer(p.cfg.UsePublicIP), nil
		}
	}
	candidates, err := p.plan(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.userData, err = userdata.Generate(cloudConfig); err != nil {
		return nil, err
	}
	return p.tryCandidates(ctx, r, candidates)
}

// find looks for the instance in all zones: an earlier attempt may have made it in any.
func (p *Provider) find(ctx context.Context, r *request) (*instance, error) {
	list, err := p.instances(ctx, map[string]string{provider.TagKey: r.key})
	if err != nil {
		return nil, err
	}
	mine := slices.IndexFunc(list, func(i instance) bool { return r.owns(&i) })
	if mine < 0 {
		return nil, nil
	}
	return &list[mine], nil
}

// tryCandidates makes the instance with the first type and zone that has capacity.
func (p *Provider) tryCandidates(ctx context.Context, r *request, candidates []places.Place) (*provider.Instance, error) {
	full := func(err error) bool { return errors.Is(err, errNoZoneCapacity) }
	return places.Try(candidates, full, func(c places.Place) (*provider.Instance, error) {
		made, err := p.makeIn(ctx, r, c)
		if err == nil {
			return made.answer(p.cfg.UsePublicIP), nil
		}
		err = fmt.Errorf("%s: %w", c, err)
		if made != nil {
			return &provider.Instance{ID: location{c.Zone, r.name}.String(), Name: r.name}, err
		}
		if full(err) {
			logger().Info("no capacity", "instance", r.name, "type", c.Type.Name, "zone", c.Zone, "error", err)
		}
		return nil, err
	})
}

// errNoZoneCapacity marks the only failure after which the next candidate is tried. It must be
// the error of an operation: the cloud remembers operations by their request id, so
// every process that makes this instance gets the same reply and tries the same
// candidates.
var errNoZoneCapacity = fmt.Errorf("%w in this zone", provider.ErrCapacity)

// maxRounds limits how often an insert is sent again because the cloud returned an old
// operation, which an earlier attempt began.
const maxRounds = 64

// makeIn makes the instance in one zone. With an error it returns the instance if it may
// exist.
func (p *Provider) makeIn(ctx context.Context, r *request, c places.Place) (*instance, error) {
	body, err := p.body(r, c)
	if err != nil {
		return nil, err
	}
	at := location{c.Zone, r.name}
	left := &instance{Name: at.name, Zone: at.zone}
	id := r.requestID(c)
	for round := range maxRounds {
		op, err := p.insert(ctx, c.Zone, body, id)
		switch {
		case failure.HasStatus(err, http.StatusConflict): // it has just been made, or is being deleted
			op = nil
		case err != nil && failure.Unsure(err):
			return left, err
		case err != nil:
			return nil, blame(err, body)
		case op.stale(p.remembered):
			// The process that got this failure may have continued in another zone,
			// and the list may not show the instance yet.
			if made, err := p.elsewhere(ctx, at); made != nil || err != nil {
				return made, err
			}
			id = follow(id, op)
			continue
		}
		made, err := p.settle(ctx, at, op)
		if made != nil || err != nil && !errors.Is(err, errNameTaken) {
			return p.outcome(made, left, err)
		}
		if op != nil {
			id = follow(id, op) // the instance was made and has been deleted since
		} else if err := p.makeRoom(ctx, at, round); err != nil {
			return left, err
		}
	}
	return left, fmt.Errorf("%w: the name is taken and there is no instance of that name", provider.ErrUnavailable)
}

// elsewhere returns the instance if it is in another zone.
func (p *Provider) elsewhere(ctx context.Context, at location) (*instance, error) {
	for _, zone := range p.cfg.Zones {
		if zone == at.zone {
			continue
		}
		other := location{zone, at.name}
		inst, err := p.getInstance(ctx, other)
		if err == nil && inst != nil {
			inst, err = p.settle(ctx, other, nil)
		}
		if inst != nil || err != nil {
			return inst, err
		}
	}
	return nil, nil
}

// makeRoom is called if the name is taken but no instance has it: one is being made or
// deleted, or a disk is left. From the third round on it removes the disk.
func (p *Provider) makeRoom(ctx context.Context, at location, round int) error {
	if err := poll.Sleep(ctx, p.wait.First); err != nil || round < 2 {
		return err
	}
	return p.removeDisk(ctx, at)
}

// failedInsert is the error of an insert that has left nothing.
type failedInsert struct{ cause error }

func (f *failedInsert) Error() string { return f.cause.Error() }
func (f *failedInsert) Unwrap() error { return f.cause }

// errNameTaken means that an insert failed because the name was taken.
var errNameTaken = fmt.Errorf("%w: the instance is there already", provider.ErrAlreadyExists)

// outcome returns the result of an attempt: with an error, left if it may exist.
func (p *Provider) outcome(made, left *instance, err error) (*instance, error) {
	var failed *failedInsert
	switch {
	case err == nil:
		return made, nil
	case errors.As(err, &failed) && errors.Is(err, provider.ErrCapacity):
		return nil, fmt.Errorf("%w: %w", errNoZoneCapacity, err)
	case errors.As(err, &failed), errors.Is(err, errForeign):
		return nil, err
	}
	return left, err
}

// errForeign means that an instance that is not ours has the name.
var errForeign = fmt.Errorf("%w: it is somebody else's", provider.ErrAlreadyExists)

func (p *Provider) insert(ctx context.Context, zone string, body *instance, id uuid.UUID) (*operation, error) {
	var op operation
	err := p.api.send(ctx, http.MethodPost, "zones/"+zone+"/instances", url.Values{"requestId": {id.String()}}, body, &op)
	if err != nil {
		return nil, err
	}
	return &op, nil
}

// blame adds to a refusal the settings that it may be about. The cloud names the
// field.
func blame(err error, body *instance) error {
	class := provider.Class(err)
	if class != provider.ErrInvalidArgument && class != provider.ErrNotFound {
		return err
	}
	return fmt.Errorf("machine type %s (-machine-type), image %s (-image-name), disk type %s (-disk-type): %w",
		base(body.MachineType), base(body.Disks[0].Params.Image), base(body.Disks[0].Params.Type), err)
}

// settle waits until the instance has its resources and its address, or is stopped. It
// returns nil if the instance does not exist (any more). op is its insert, or nil. If
// that has failed settle removes what it left and returns the error.
func (p *Provider) settle(ctx context.Context, at location, op *operation) (*instance, error) {
	var answer *instance
	err := p.wait.Until(ctx, func() (bool, error) {
		existing, err := p.getInstance(ctx, at)
		if err != nil {
			return false, err
		}
		if existing != nil && tagsOf(existing.Description) == nil {
			return false, fmt.Errorf("%s: %w", at, errForeign)
		}
		if existing != nil && existing.hasResources() && existing.addresses(p.cfg.UsePublicIP) != nil {
			answer = existing
			return true, nil
		}
		if op != nil {
			return p.follow(ctx, at, op, &answer)
		}
		if existing != nil && existing.stopped() {
			answer = existing
		}
		return existing == nil || existing.stopped(), nil
	})
	return answer, failure.Classify(err)
}

// follow polls the insert while its instance has no resources. When it is done the
// instance has them.
func (p *Provider) follow(ctx context.Context, at location, op *operation, answer **instance) (bool, error) {
	if op.Status != operationDone {
		if err := p.refresh(ctx, "zones/"+at.zone, op); err != nil {
			return false, err
		}
	}
	if op.Status != operationDone {
		return false, nil
	}
	if failure := op.failure(); failure != nil {
		return true, p.afterFailure(ctx, at.zone, op, failure)
	}
	existing, err := p.getInstance(ctx, at)
	if err != nil || existing == nil {
		return true, err
	}
	if existing.stopped() || existing.hasResources() && existing.addresses(p.cfg.UsePublicIP) != nil {
		*answer = existing
		return true, nil
	}
	return false, nil // it is being deleted
}

// afterFailure removes what a failed insert may have left. It uses the instance's
// numeric id: another instance may have the name by now.
func (p *Provider) afterFailure(ctx context.Context, zone string, op *operation, failure error) error {
	if errors.Is(failure, provider.ErrAlreadyExists) {
		return errNameTaken
	}
	if op.TargetID != "" {
		if _, err := p.remove(ctx, location{zone, op.TargetID}); err != nil {
			return fmt.Errorf("%w; and what it left cannot be removed: %v", failure, err)
		}
	}
	return &failedInsert{failure}
}
