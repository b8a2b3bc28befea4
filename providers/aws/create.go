// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/places"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// CreateInstance implements provider.Provider. When it fails with an instance
// made, it returns that instance with the error: deleting it removes all.
func (p *Provider) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (made *provider.Instance, err error) {
	defer explain(&err, "create instance")
	userData, err := userdata.Generate(cloudConfig)
	if err != nil {
		return nil, err
	}
	ctx, s, done, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	unlock, err := p.locks.Take(ctx, sandboxID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	pl, err := p.plan(ctx, s, podName, sandboxID, userData, spec)
	if err != nil {
		return nil, err
	}
	launched, err := p.launch(ctx, s, pl)
	if err != nil {
		return nil, err
	}
	launched, err = p.reachable(ctx, s, pl, launched)
	return s.instance(launched), err
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
// cloud says that it has none left, and no call before that went without a
// reply: only then is it certain that nothing was made.
func (p *Provider) attempt(ctx context.Context, s *session, pl *plan, token string) (*types.Instance, error) {
	type place struct{ instanceType, subnet string }
	var list []place
	for _, instanceType := range pl.types[:min(len(pl.types), maxTypes)] {
		for _, subnet := range p.order(pl) {
			list = append(list, place{instanceType, subnet})
		}
	}
	return places.Try(list, places.NoCapacity, func(at place) (*types.Instance, error) {
		var repeated retries
		out, err := s.ec2().RunInstances(ctx, p.request(pl, at.instanceType, at.subnet, token), repeated.watch)
		switch {
		case err == nil && len(out.Instances) == 1:
			p.doubtful.Delete(pl.key)
			return &out.Instances[0], nil
		case err == nil:
			return nil, fmt.Errorf("%w: RunInstances returned %d instances", provider.ErrUnknown, len(out.Instances))
		case (!refused(err) || repeated.doubtful) && at.subnet != "":
			p.doubtful.Store(pl.key, at.subnet)
		}
		what := fmt.Sprintf("type %s, AMI %s", at.instanceType, pl.image.id)
		if at.subnet != "" {
			what += ", subnet " + at.subnet
		}
		err = classify(what, err)
		if places.NoCapacity(err) && repeated.doubtful {
			err = fmt.Errorf("%w: a call before that had no reply, and may have made the instance: %v", provider.ErrUnavailable, err)
		}
		return nil, err
	})
}

// retries is called by the SDK for each call that it repeats by itself.
type retries struct {
	sdk.Retryer
	doubtful bool // one of them may have done its work
}

func (r *retries) watch(o *ec2.Options) { r.Retryer, o.Retryer = o.Retryer, r }

// RetryDelay is called after each call that is repeated.
func (r *retries) RetryDelay(attempt int, err error) (time.Duration, error) {
	r.doubtful = r.doubtful || !refused(err)
	return r.Retryer.RetryDelay(attempt, err)
}

// order returns the subnets in the order of the configuration, but beginning with the
// one where an earlier call may have made the instance.
func (p *Provider) order(pl *plan) []string {
	first, _ := p.doubtful.Load(pl.key)
	i := slices.IndexFunc(pl.subnets, func(subnet string) bool { return subnet == first })
	if i <= 0 {
		return pl.subnets
	}
	rest := slices.Delete(slices.Clone(pl.subnets), i, i+1)
	return append([]string{pl.subnets[i]}, rest...)
}

// lookUpPatiently is lookUp for a process that may have taken over from another one.
// That may have made the instance in any of the zones, and EC2 may not show it yet. So
// nothing is made until EC2 must have shown it.
func (p *Provider) lookUpPatiently(ctx context.Context, s *session, pl *plan) (*types.Instance, int, error) {
	for t := p.pace().Ticker(0); ; {
		late := time.Since(p.began) >= p.timing.settle
		existing, next, err := s.lookUp(ctx, pl)
		if existing != nil || err != nil || late {
			return existing, next, err
		}
		if err := t.Wait(ctx); err != nil {
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
	var found *types.Instance
	_, err := p.look(ctx, p.timing.token, func() (bool, error) {
		instances, err := s.describe(ctx, []types.Filter{filter("client-token", token)})
		if i := slices.IndexFunc(instances, func(i types.Instance) bool { return !ending(&i) }); i >= 0 {
			found = &instances[i]
		}
		return len(instances) > 0, classify("look for the instance of the token", err)
	})
	return found, err
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

// maxGenerations is how often one key can be used again within a day.
const maxGenerations = 1000

// token returns the client token of the nth instance of a key. Clusters may
// share an account, and keys with each other. All 64 characters that EC2 takes
// are used; the form never changes, so that nobody an instance be made twice.
func token(owner map[string]string, key string, generation int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", owner[provider.TagCluster], key, generation))
	return hex.EncodeToString(sum[:])
}

// after returns the generation after those of the instances.
func (pl *plan) after(instances []types.Instance) int {
	tokens := map[string]bool{}
	for _, i := range instances {
		if i.ClientToken != nil {
			tokens[*i.ClientToken] = true
		}
	}
	next := 0
	for generation := 0; len(tokens) > 0 && generation < maxGenerations; generation++ {
		if t := token(pl.owned, pl.key, generation); tokens[t] {
			delete(tokens, t)
			next = generation + 1
		}
	}
	return next
}
