// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// CreateInstance implements provider.Provider. When it fails with an instance
// made, it returns that instance with the error: deleting it removes all.
func (p *Provider) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	ctx, done, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	userData, err := userdata.Generate(cloudConfig)
	if err != nil {
		return nil, fmt.Errorf("create instance: %w", err)
	}
	unlock, err := p.lock(ctx, "key "+sandboxID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	instance, err := p.create(ctx, podName, sandboxID, userData, spec)
	return instance, classify("create instance", err)
}

func (p *Provider) create(ctx context.Context, podName, key, userData string, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	s, err := p.session(ctx)
	if err != nil {
		return nil, err
	}
	pl, err := p.plan(ctx, s, podName, key, userData, spec)
	if err != nil {
		return nil, err
	}
	made, err := p.launch(ctx, s, pl)
	if err != nil {
		return nil, err
	}
	made, err = p.reachable(ctx, s, pl, made)
	return s.instance(made), err
}

// launch returns the instance of the key, making it if there is none.
func (p *Provider) launch(ctx context.Context, s *session, pl *plan) (*types.Instance, error) {
	generation := 0
	if len(pl.subnets) > 1 { // a token counts in its zone only
		existing, next, err := p.lookUpPatiently(ctx, s, pl)
		if existing != nil || err != nil {
			return existing, err
		}
		generation = next
	}
	for generation < maxGenerations {
		t := token(pl.owned, pl.key, generation)
		made, err := p.attempt(ctx, s, pl, t)
		ended := isCode(err, "IdempotentInstanceTerminated")
		switch {
		case err == nil && (!ending(made) || failedLaunch(made)):
			return made, nil
		case isCode(err, "IdempotentParameterMismatch"):
			existing, findErr := p.findByToken(ctx, s, t)
			if existing != nil || findErr != nil {
				return existing, findErr
			}
		case err != nil && !ended:
			return nil, err
		}
		existing, next, err := s.lookUp(ctx, pl)
		if existing != nil || err != nil {
			return existing, err
		}
		generation = max(generation+1, next)
	}
	return nil, fmt.Errorf("%w: key %s was used %d times within a day", provider.ErrInvalidArgument, pl.key, maxGenerations)
}

// maxTypes bounds the calls for one instance where patterns allow many types.
const maxTypes = 10

// attempt tries types and subnets, the cheapest type first, as long as the
// cloud says that it has none left. Between refusals it never goes on: only
// then is it certain that nothing was made.
func (p *Provider) attempt(ctx context.Context, s *session, pl *plan, token string) (*types.Instance, error) {
	var refusals []error
	for _, instanceType := range pl.types[:min(len(pl.types), maxTypes)] {
		for _, subnet := range p.order(pl) {
			out, err := s.ec2.RunInstances(ctx, p.request(pl, instanceType, subnet, token))
			switch {
			case err == nil && len(out.Instances) == 1:
				p.doubtful.note(pl.key, "")
				return &out.Instances[0], nil
			case err == nil:
				return nil, fmt.Errorf("%w: RunInstances answered %d instances", provider.ErrUnknown, len(out.Instances))
			case !refused(err):
				p.doubtful.note(pl.key, subnet)
			}
			err = describeAttempt(pl, instanceType, subnet, err)
			if !errors.Is(err, provider.ErrCapacity) {
				return nil, err
			}
			refusals = append(refusals, err)
		}
	}
	return nil, errors.Join(refusals...)
}

func describeAttempt(pl *plan, instanceType, subnet string, err error) error {
	what := fmt.Sprintf("type %s, AMI %s", instanceType, pl.image.id)
	if subnet != "" {
		what += ", subnet " + subnet
	}
	return classify(what, err)
}

// order returns the subnets in the order of the configuration, but beginning with the
// one where an earlier call may have made the instance.
func (p *Provider) order(pl *plan) []string {
	first := p.doubtful.of(pl.key)
	i := slices.Index(pl.subnets, first)
	if i <= 0 {
		return pl.subnets
	}
	rest := slices.Delete(slices.Clone(pl.subnets), i, i+1)
	return append([]string{first}, rest...)
}

// lookUpPatiently is lookUp for a process that may have taken over from another one.
// That may have made the instance in any of the zones, and EC2 may not show it yet. So
// nothing is made until EC2 must have shown it.
func (p *Provider) lookUpPatiently(ctx context.Context, s *session, pl *plan) (*types.Instance, int, error) {
	for w := p.newBackoff(0); ; {
		late := time.Since(p.began) >= p.timing.settle
		existing, next, err := s.lookUp(ctx, pl)
		if existing != nil || err != nil || late {
			return existing, next, err
		}
		if _, err := w.wait(ctx); err != nil {
			return nil, 0, err
		}
	}
}

// lookUp returns the instance of the key if the cloud shows one, and otherwise
// the generation of the next.
func (s *session) lookUp(ctx context.Context, pl *plan) (*types.Instance, int, error) {
	match := map[string]string{provider.TagKey: pl.key}
	if cluster, ok := pl.owned[provider.TagCluster]; ok {
		match[provider.TagCluster] = cluster
	}
	instances, err := s.describe(ctx, tagFilters(match))
	if err != nil {
		return nil, 0, classify("look for the instance of the key", err)
	}
	for _, i := range instances {
		if !ending(&i) {
			return &i, 0, nil
		}
	}
	return nil, pl.after(instances), nil
}

// findByToken returns the instance that EC2 says there is, nil when it has
// ended. One that is not shown after all that time ended long ago.
func (p *Provider) findByToken(ctx context.Context, s *session, token string) (*types.Instance, error) {
	for w := p.newBackoff(p.timing.token); ; {
		instances, err := s.describe(ctx, []types.Filter{filter("client-token", token)})
		if err != nil {
			return nil, classify("look for the instance of the token", err)
		}
		for _, i := range instances {
			if !ending(&i) {
				return &i, nil
			}
		}
		if len(instances) > 0 {
			return nil, nil
		}
		if more, err := w.wait(ctx); !more {
			return nil, err
		}
	}
}

// ending reports whether an instance costs nothing any more.
func ending(i *types.Instance) bool {
	state := stateName(i)
	return state == types.InstanceStateNameShuttingDown || state == types.InstanceStateNameTerminated
}

func stateName(i *types.Instance) types.InstanceStateName {
	if i.State == nil {
		return ""
	}
	return i.State.Name
}

func id(i *types.Instance) string { return sdk.ToString(i.InstanceId) }
