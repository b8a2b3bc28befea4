// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
)

// states are EC2's states of an instance that may cost something.
var states = map[types.InstanceStateName]provider.InstanceState{
	types.InstanceStateNamePending:      provider.StatePending,
	types.InstanceStateNameRunning:      provider.StateRunning,
	types.InstanceStateNameStopping:     provider.StateStopped, // nobody reaches it any more
	types.InstanceStateNameStopped:      provider.StateStopped,
	types.InstanceStateNameShuttingDown: provider.StateDeleting,
}

func (s *session) instance(i *types.Instance) *provider.Instance {
	tags := tagsOf(i.Tags)
	made := &provider.Instance{
		ID: id(i), Name: tags[tagName], Key: tags[provider.TagKey], Tags: tags, State: states[stateName(i)],
		Region: s.region, Type: string(i.InstanceType),
	}
	if created := createdOf(i); created != nil {
		made.Created = *created
	}
	if i.Placement != nil {
		made.Zone = sdk.ToString(i.Placement.AvailabilityZone)
	}
	if addr, ok := addressOf(i); ok {
		made.IPs = []netip.Addr{addr}
	}
	return made
}

// createdOf returns when the first interface was attached: the launch time is that of
// the last start.
func createdOf(i *types.Instance) *time.Time {
	for _, nic := range i.NetworkInterfaces {
		if nic.Attachment != nil && nic.Attachment.AttachTime != nil && nicIndex(nic) == 0 {
			return nic.Attachment.AttachTime
		}
	}
	return i.LaunchTime
}

// addressOf returns the address by which an instance is reached, if it has it.
func addressOf(i *types.Instance) (netip.Addr, bool) {
	text := sdk.ToString(i.PrivateIpAddress)
	if reach(tagsOf(i.Tags)[tagReach]) != reachPrivate {
		text = sdk.ToString(i.PublicIpAddress)
	}
	addr, err := netip.ParseAddr(text)
	return addr, err == nil
}

func tagsOf(list []types.Tag) map[string]string {
	tags := map[string]string{}
	for _, tag := range list {
		tags[sdk.ToString(tag.Key)] = sdk.ToString(tag.Value)
	}
	return tags
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: &name, Values: values}
}

// literal keeps EC2 from taking characters of a value as wildcards.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`)

func tagFilters(match map[string]string) []types.Filter {
	var filters []types.Filter
	for _, key := range slices.Sorted(maps.Keys(match)) {
		filters = append(filters, filter("tag:"+key, literal.Replace(match[key])))
	}
	return filters
}

// describe returns all instances that the filters let through, in any state.
func (s *session) describe(ctx context.Context, filters []types.Filter) ([]types.Instance, error) {
	var list []types.Instance
	for in := (&ec2.DescribeInstancesInput{Filters: filters, MaxResults: sdk.Int32(1000)}); ; {
		page, err := s.ec2.DescribeInstances(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, reservation := range page.Reservations {
			list = append(list, reservation.Instances...)
		}
		if in.NextToken = page.NextToken; sdk.ToString(in.NextToken) == "" {
			return list, nil
		}
	}
}

// once asks once.
const once = -1

// find returns an instance, nil if there is none even after a while.
func (p *Provider) find(ctx context.Context, s *session, instanceID string, limit time.Duration) (*types.Instance, error) {
	if !instanceSyntax.MatchString(instanceID) {
		return nil, nil
	}
	for w := p.newBackoff(limit); ; {
		out, err := s.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{instanceID}})
		switch {
		case err == nil && len(out.Reservations) == 1 && len(out.Reservations[0].Instances) == 1:
			return &out.Reservations[0].Instances[0], nil
		case err != nil && !isCode(err, notFoundInstance):
			return nil, err
		case limit == once:
			return nil, nil
		}
		if more, err := w.wait(ctx); !more {
			return nil, err
		}
	}
}

func ours(i *types.Instance) bool { return tagsOf(i.Tags)[provider.TagKey] != "" }

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (*provider.Instance, error) {
	var answer *provider.Instance
	err := p.with(ctx, "get instance "+instanceID, instanceID, once, func(_ context.Context, s *session, i *types.Instance) error {
		answer = s.instance(i)
		return nil
	})
	return answer, err
}

// with looks up an instance of ours that has not ended and calls f.
func (p *Provider) with(ctx context.Context, what, instanceID string, limit time.Duration, f func(context.Context, *session, *types.Instance) error) error {
	ctx, done, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	s, err := p.session(ctx)
	if err != nil {
		return err
	}
	i, err := p.find(ctx, s, instanceID, limit)
	switch {
	case err != nil:
		return classify(what, err)
	case i == nil || !ours(i) || stateName(i) == types.InstanceStateNameTerminated:
		return fmt.Errorf("%s: %w: there is none in %s", what, provider.ErrNotFound, s.region)
	}
	return classify(what, f(ctx, s, i))
}

// ListInstances implements provider.Lister. Elastic addresses whose instance
// is gone are listed as that instance, volumes as instances of their own.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	ctx, done, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	list, err := p.list(ctx, match)
	return list, classify("list instances", err)
}

func (p *Provider) list(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	s, err := p.session(ctx)
	if err != nil {
		return nil, err
	}
	addresses, err := s.addresses(ctx, tagFilters(match)) // before the instances: theirs are older
	if err != nil {
		return nil, err
	}
	instances, err := s.describe(ctx, tagFilters(match))
	if err != nil {
		return nil, err
	}
	var list []provider.Instance
	alive, keys := map[string]bool{}, map[string]bool{}
	for _, i := range instances {
		if !provider.HasTags(tagsOf(i.Tags), match) || !ours(&i) || stateName(&i) == types.InstanceStateNameTerminated {
			continue
		}
		alive[id(&i)], keys[tagsOf(i.Tags)[provider.TagKey]] = true, true
		list = append(list, *s.instance(&i))
	}
	for _, a := range addresses {
		tags := tagsOf(a.Tags)
		if owner := tags[tagInstance]; owner != "" && !alive[owner] && provider.HasTags(tags, match) {
			alive[owner] = true
			list = append(list, provider.Instance{ID: owner, Name: tags[tagName], Key: tags[provider.TagKey], Tags: tags, State: provider.StateDeleting, Region: s.region})
		}
	}
	strays, err := p.strayVolumes(ctx, s, tagFilters(match))
	if err != nil {
		return nil, err
	}
	for _, v := range strays {
		// One that was taken from an instance that lives may go back there.
		if tags := tagsOf(v.Tags); provider.HasTags(tags, match) && !keys[tags[provider.TagKey]] {
			list = append(list, s.strayInstance(v))
		}
	}
	return list, nil
}
