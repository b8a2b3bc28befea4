// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/tags"
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
	return tags.List(match, func(key, value string) types.Filter { return filter("tag:"+key, literal.Replace(value)) })
}

// describe returns all instances that the filters let through, in any state.
func (s *session) describe(ctx context.Context, filters []types.Filter) ([]types.Instance, error) {
	var list []types.Instance
	for in := (&ec2.DescribeInstancesInput{Filters: filters, MaxResults: sdk.Int32(1000)}); ; {
		page, err := s.ec2().DescribeInstances(ctx, in)
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
	var found *types.Instance
	_, err := p.look(ctx, limit, func() (bool, error) {
		out, err := s.ec2().DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{instanceID}})
		switch {
		case err == nil && len(out.Reservations) == 1 && len(out.Reservations[0].Instances) == 1:
			found = &out.Reservations[0].Instances[0]
		case isCode(err, notFoundInstance):
			err = nil
		}
		return found != nil || limit == once, err
	})
	return found, err
}

func ours(i *types.Instance) bool { return tagsOf(i.Tags)[provider.TagKey] != "" }

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (found *provider.Instance, err error) {
	defer explain(&err, "get instance %s", instanceID)
	err = p.with(ctx, instanceID, once, func(_ context.Context, s *session, i *types.Instance) error {
		found = s.instance(i)
		return nil
	})
	return found, err
}

// with looks up an instance of ours that has not ended and calls f.
func (p *Provider) with(ctx context.Context, instanceID string, limit time.Duration, f func(context.Context, *session, *types.Instance) error) error {
	ctx, s, done, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	i, err := p.find(ctx, s, instanceID, limit)
	switch {
	case err != nil:
		return err
	case i == nil || !ours(i) || stateName(i) == types.InstanceStateNameTerminated:
		return fmt.Errorf("%w: there is none in %s", provider.ErrNotFound, s.region)
	}
	return f(ctx, s, i)
}

// ListInstances implements provider.Lister. Elastic addresses whose instance
// is gone are listed as that instance, volumes as instances of their own.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) (list []provider.Instance, err error) {
	defer explain(&err, "list instances")
	ctx, s, done, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	addresses, err := s.addresses(ctx, tagFilters(match)) // before the instances: theirs are older
	if err != nil {
		return nil, err
	}
	instances, err := s.describe(ctx, tagFilters(match))
	if err != nil {
		return nil, err
	}
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
		if provider.HasTags(v.tags, match) && !keys[v.tags[provider.TagKey]] {
			list = append(list, s.strayInstance(v))
		}
	}
	return list, nil
}

// Volumes go with their instance. Those that have stayed anyway, since the
// instance's launch failed half way, a launch template had changed since it was
// read, or somebody had detached them, are listed as instances by their own
// ids, and deleted by them.

// strayVolumes returns volumes with these tags that an instance has left. A disk of its own is none of them. A
// young one may be about to be attached.
func (p *Provider) strayVolumes(ctx context.Context, s *session, filters []types.Filter) ([]*volume, error) {
	list, err := s.stored(ctx, kindDisk, "", append(filters, filter("status", string(types.VolumeStateAvailable), stateError)))
	return slices.DeleteFunc(list, func(v *volume) bool {
		return v.tags[provider.TagKey] == "" || v.tags[tagVolume] != "" || time.Since(v.created) < p.timing.stray
	}), err
}

func (s *session) strayInstance(v *volume) provider.Instance {
	return provider.Instance{
		ID: v.id, Name: v.tags[tagName], Key: v.tags[provider.TagKey], Tags: v.tags, State: provider.StateDeleting,
		Created: v.created, Region: s.region, Zone: v.zone,
	}
}

// deleteVolume removes a volume of ours that belongs to no instance.
func (p *Provider) deleteVolume(ctx context.Context, s *session, id string) error {
	v, err := s.getVolume(ctx, kindDisk, id)
	switch {
	case errors.Is(err, provider.ErrNotFound):
		return nil
	case err != nil:
		return err
	case v.tags[provider.TagKey] == "":
		return fmt.Errorf("%w: it lacks the tag %s: it is somebody else's", provider.ErrPermissionDenied, provider.TagKey)
	case v.tags[tagVolume] != "":
		return fmt.Errorf("%w: volume %s is a disk of its own, and not what an instance has left", provider.ErrPermissionDenied, id)
	case v.state != string(types.VolumeStateAvailable) && v.state != stateError:
		return fmt.Errorf("%w: volume %s is %s: it goes with its instance", provider.ErrInvalidArgument, id, v.state)
	}
	return s.remove(ctx, kindDisk, id)
}
