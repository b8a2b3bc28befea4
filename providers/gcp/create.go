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
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// maxPlaces bounds how many pairs of type and zone one creation tries.
const maxPlaces = 24

// CreateInstance implements provider.Provider. A key that is taken answers its
// instance whatever the other arguments say.
func (p *Provider) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	if sandboxID == "" {
		return nil, fmt.Errorf("%w: create instance: the sandbox id is empty", provider.ErrInvalidArgument)
	}
	r := newRequest(podName, sandboxID, spec)
	unlock, err := p.locks.Take(ctx, r.identity())
	if err != nil {
		return nil, fmt.Errorf("create instance: %w: %w", provider.ErrUnavailable, err)
	}
	defer unlock()
	made, err := p.findOrMake(ctx, r, cloudConfig)
	if err != nil {
		err = fmt.Errorf("create instance %s: %w", r.name, classify(err))
	}
	return made, err
}

// findOrMake returns an instance, also beside an error, when the caller may
// have something to delete.
func (p *Provider) findOrMake(ctx context.Context, r *request, cloudConfig cloudinit.CloudConfigGenerator) (*provider.Instance, error) {
	found, err := p.find(ctx, r)
	if err != nil {
		return nil, err
	}
	if found != nil {
		settled, err := p.settle(ctx, found.place(), nil)
		if err != nil {
			return &provider.Instance{ID: found.place().String(), Name: found.Name}, err
		}
		if settled != nil {
			return settled.answer(p.cfg.UsePublicIP), nil
		}
	}
	places, err := p.plan(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.userData, err = userdata.Generate(cloudConfig); err != nil {
		return nil, err
	}
	return p.tryPlaces(ctx, r, places)
}

// find looks for the instance in all zones: an earlier attempt may have ended
// up in another than the first.
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

// tryPlaces tries the next type or zone while the cloud has no capacity.
func (p *Provider) tryPlaces(ctx context.Context, r *request, places []candidate) (*provider.Instance, error) {
	var refusals []error
	for _, c := range places {
		made, err := p.makeIn(ctx, r, c)
		if err == nil {
			return made.answer(p.cfg.UsePublicIP), nil
		}
		err = fmt.Errorf("%s in %s: %w", c.kind.Name, c.zone, classify(err))
		if !errors.Is(err, errNoRoom) {
			return r.remains(c, made), errors.Join(err, summary(refusals))
		}
		logger().Info("no capacity", "instance", r.name, "type", c.kind.Name, "zone", c.zone, "error", err)
		refusals = append(refusals, err)
	}
	return nil, errors.Join(refusals...)
}

func summary(refusals []error) error {
	if len(refusals) == 0 {
		return nil
	}
	return fmt.Errorf("before that, no capacity in %d places", len(refusals))
}

// errNoRoom marks the one failure after which another place is tried. Only an
// operation's error is one: the cloud remembers operations by their request
// id, so every process that makes this instance gets the same answer and goes
// the same way.
var errNoRoom = fmt.Errorf("%w in this zone", provider.ErrCapacity)

// maxRounds bounds how often an insert is sent again because what it answered
// is over: the outcome of an operation that an earlier attempt began.
const maxRounds = 64

// makeIn makes the instance in one zone. With an error it returns an instance
// where one may be left.
func (p *Provider) makeIn(ctx context.Context, r *request, c candidate) (*instance, error) {
	body, err := p.body(r, c)
	if err != nil {
		return nil, err
	}
	at := place{c.zone, r.name}
	left := &instance{Name: at.name, Zone: at.zone}
	id := r.requestID(c)
	for round := range maxRounds {
		op, err := p.insert(ctx, c.zone, body, id)
		switch {
		case isStatus(err, http.StatusConflict): // somebody has just made it, or it is about to go
			op = nil
		case err != nil && mayHaveHappened(err):
			return left, err
		case err != nil:
			return nil, p.explain(err, body)
		case op.stale(p.remembered):
			// Whoever met that failure may have gone on to another zone, and
			// the list may not show it yet.
			if made, err := p.elsewhere(ctx, at); made != nil || err != nil {
				return made, err
			}
			id = follow(id, op)
			continue
		}
		made, err := p.settle(ctx, at, op)
		if made != nil || err != nil && !errors.Is(err, errTwice) {
			return p.outcome(made, left, err)
		}
		if op != nil {
			id = follow(id, op) // made and deleted since
		} else if err := p.makeRoom(ctx, at, round); err != nil {
			return left, err
		}
	}
	return left, fmt.Errorf("%w: the name is taken and there is no instance of that name", provider.ErrUnavailable)
}

// elsewhere returns the instance if it is in another zone.
func (p *Provider) elsewhere(ctx context.Context, at place) (*instance, error) {
	for _, zone := range p.cfg.Zones {
		if zone == at.zone {
			continue
		}
		other := place{zone, at.name}
		found, err := p.look(ctx, other)
		if err == nil && found != nil {
			found, err = p.settle(ctx, other, nil)
		}
		if found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

// makeRoom is for a name that is taken by no instance: one is just coming or
// going, or a disk has lost its own.
func (p *Provider) makeRoom(ctx context.Context, at place, round int) error {
	if err := poll.Sleep(ctx, p.wait.First); err != nil {
		return fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
	}
	if round < 2 {
		return nil
	}
	return p.removeDisk(ctx, at)
}

// failedInsert is the error of an insert of which nothing is left.
type failedInsert struct{ cause error }

func (f *failedInsert) Error() string { return f.cause.Error() }
func (f *failedInsert) Unwrap() error { return f.cause }

// errTwice means that an insert has found another instance of its name.
var errTwice = fmt.Errorf("%w: the instance is there already", provider.ErrAlreadyExists)

// outcome sorts how an attempt has ended.
func (p *Provider) outcome(made, left *instance, err error) (*instance, error) {
	var failed *failedInsert
	switch {
	case err == nil:
		return made, nil
	case errors.As(err, &failed) && errors.Is(err, provider.ErrCapacity):
		return nil, fmt.Errorf("%w: %w", errNoRoom, err)
	case errors.As(err, &failed), errors.Is(err, errForeign):
		return nil, err
	}
	return left, err
}

// errForeign means that the name is that of an instance which is not ours.
var errForeign = fmt.Errorf("%w: it is somebody else's", provider.ErrAlreadyExists)

// mayHaveHappened reports whether an insert that failed can have been accepted.
func mayHaveHappened(err error) bool {
	var refused *apiError
	return errors.Is(err, provider.ErrUnavailable) && (!errors.As(err, &refused) || refused.Status >= 500)
}

func (p *Provider) insert(ctx context.Context, zone string, body *instance, id uuid.UUID) (*operation, error) {
	var op operation
	err := p.api.send(ctx, http.MethodPost, "zones/"+zone+"/instances", url.Values{"requestId": {id.String()}}, body, &op)
	if err != nil {
		return nil, err
	}
	return &op, nil
}

// explain names the setting that a refusal is about. The cloud says which field
// it is.
func (p *Provider) explain(err error, body *instance) error {
	class := provider.Class(err)
	if class != provider.ErrInvalidArgument && class != provider.ErrNotFound {
		return err
	}
	return fmt.Errorf("machine type %s (-machine-type), image %s (-image-name), disk type %s (-disk-type): %w",
		base(body.MachineType), base(body.Disks[0].Params.Image), base(body.Disks[0].Params.Type), err)
}

// settle waits until the instance has its resources and its address, or is
// stopped. It returns nil when there is no such instance (any more), and an
// error when its insert, op, has failed; then nothing is left of it.
func (p *Provider) settle(ctx context.Context, at place, op *operation) (*instance, error) {
	var answer *instance
	err := p.wait.Until(ctx, func() (bool, error) {
		found, err := p.look(ctx, at)
		if err != nil {
			return false, err
		}
		if found != nil && tagsOf(found.Description) == nil {
			return false, fmt.Errorf("%s: %w", at, errForeign)
		}
		if found != nil && found.placed() && found.addresses(p.cfg.UsePublicIP) != nil {
			answer = found
			return true, nil
		}
		if op != nil {
			return p.follow(ctx, at, op, &answer)
		}
		if found != nil && found.stopped() {
			answer = found
		}
		return found == nil || found.stopped(), nil
	})
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
	}
	return answer, err
}

// follow polls the insert while its instance has no resources. Once it is done
// the cloud lists them.
func (p *Provider) follow(ctx context.Context, at place, op *operation, answer **instance) (bool, error) {
	if op.Status != operationDone {
		if err := p.refresh(ctx, at.zone, op); err != nil {
			return false, err
		}
	}
	if op.Status != operationDone {
		return false, nil
	}
	if failure := op.failure(); failure != nil {
		return true, p.afterFailure(ctx, at.zone, op, failure)
	}
	found, err := p.look(ctx, at)
	if err != nil || found == nil {
		return true, err
	}
	if found.stopped() || found.placed() && found.addresses(p.cfg.UsePublicIP) != nil {
		*answer = found
		return true, nil
	}
	return false, nil // on its way out
}

// afterFailure removes what a failed insert may have left, by the number of
// that one instance: another may have its name by now.
func (p *Provider) afterFailure(ctx context.Context, zone string, op *operation, failure error) error {
	if errors.Is(failure, provider.ErrAlreadyExists) {
		return errTwice
	}
	if op.TargetID != "" {
		if _, err := p.remove(ctx, place{zone, op.TargetID}); err != nil {
			return fmt.Errorf("%w; and what it left cannot be removed: %v", failure, err)
		}
	}
	return &failedInsert{failure}
}
