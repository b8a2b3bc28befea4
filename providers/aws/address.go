// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// reachable waits until the address is known by which the instance is reached,
// and makes elastic ones.
func (p *Provider) reachable(ctx context.Context, s *session, pl *plan, i *types.Instance) (*types.Instance, error) {
	if ending(i) {
		return i, endedBy(i)
	}
	want := reach(tagsOf(i.Tags)[tagReach])
	if _, ok := addressOf(i); ok && want != reachElastic {
		return i, nil
	}
	ready := func(i *types.Instance) bool {
		_, ok := addressOf(i)
		return ok
	}
	if want == reachElastic { // associating needs an instance that runs or is stopped
		ready = func(i *types.Instance) bool {
			return stateName(i) != types.InstanceStateNamePending && len(i.NetworkInterfaces) > 0
		}
	}
	addresses, err := p.await(ctx, s, i, ready)
	if err != nil || want != reachElastic {
		return addresses, err
	}
	return p.elastic(ctx, s, pl, addresses)
}

// await asks until the instance is as wanted. It returns what it knows last.
func (p *Provider) await(ctx context.Context, s *session, i *types.Instance, ready func(*types.Instance) bool) (*types.Instance, error) {
	err := p.pace().Until(ctx, func() (bool, error) {
		seen, err := p.find(ctx, s, id(i), p.timing.token) // it is there
		switch {
		case err != nil:
			return false, err
		case seen == nil:
			return false, fmt.Errorf("%w: instance %s is gone: somebody has terminated it", provider.ErrUnavailable, id(i))
		case ending(seen):
			i = seen
			return false, endedBy(seen)
		}
		i = seen
		return ready(i), nil
	})
	return i, err
}

// endings are the classes of the reasons for which EC2 ends an instance that
// it has just made (EC2 API reference, StateReason).
var endings = map[string]error{
	"Server.InsufficientInstanceCapacity": provider.ErrCapacity,
	"Server.SpotInstanceTermination":      provider.ErrCapacity,
	"Server.SpotInstanceShutdown":         provider.ErrCapacity,
	"Client.VolumeLimitExceeded":          provider.ErrQuota,
	"Client.InternalError":                provider.ErrInvalidArgument, // such as a disk's key that may not be used
	"Client.InvalidSnapshot.NotFound":     provider.ErrInvalidArgument,
	"Client.InvalidSnapshotId.NotFound":   provider.ErrInvalidArgument,
	"Client.InstanceInitiatedShutdown":    provider.ErrUnavailable,
	"Client.UserInitiatedShutdown":        provider.ErrUnavailable,
	"Server.InternalError":                provider.ErrUnavailable,
}

// failedLaunch reports whether an instance has ended because it could not be
// made, and not because somebody wanted it to.
func failedLaunch(i *types.Instance) bool {
	if i.StateReason == nil {
		return false
	}
	code := sdk.ToString(i.StateReason.Code)
	return endings[code] != nil && !strings.HasSuffix(code, "InitiatedShutdown")
}

func endedBy(i *types.Instance) error {
	if i.StateReason == nil {
		return fmt.Errorf("%w: instance %s has ended", provider.ErrUnavailable, id(i))
	}
	class := cmp.Or(endings[sdk.ToString(i.StateReason.Code)], provider.ErrUnavailable)
	return fmt.Errorf("%w: instance %s has ended: %s", class, id(i), sdk.ToString(i.StateReason.Message))
}

// elastic sees to it that each interface has its address. It returns the
// instance with the address of the first.
func (p *Provider) elastic(ctx context.Context, s *session, pl *plan, i *types.Instance) (*types.Instance, error) {
	nics := slices.SortedFunc(slices.Values(i.NetworkInterfaces), func(a, b types.InstanceNetworkInterface) int {
		return cmp.Compare(nicIndex(a), nicIndex(b))
	})
	for _, nic := range nics {
		address, err := p.addressFor(ctx, s, pl, i, nic)
		if err != nil {
			return i, fmt.Errorf("elastic address of instance %s: %w", id(i), err)
		}
		if nicIndex(nic) == 0 {
			i.PublicIpAddress = address.PublicIp
		}
	}
	return i, nil
}

func nicIndex(nic types.InstanceNetworkInterface) int32 {
	if nic.Attachment == nil {
		return -1
	}
	return sdk.ToInt32(nic.Attachment.DeviceIndex)
}

// addressFor returns the address of an interface, making it if there is none.
// The call that makes one has no token, so several processes may make several:
// it goes on until there is one and that is the interface's. What an interface
// has stays, and otherwise the first by id; everybody releases the rest.
func (p *Provider) addressFor(ctx context.Context, s *session, pl *plan, i *types.Instance, nic types.InstanceNetworkInterface) (*types.Address, error) {
	index := strconv.Itoa(int(nicIndex(nic)))
	for t := p.pace().Ticker(0); ; {
		addresses, err := s.addressesOf(ctx, id(i), index)
		if err != nil {
			return nil, err
		}
		if len(addresses) == 0 {
			if addresses, err = p.allocate(ctx, s, pl, id(i), index); err != nil {
				return nil, err
			}
		}
		first := max(0, slices.IndexFunc(addresses, func(a types.Address) bool { return has(nic, a) }))
		if len(addresses) == 1 && has(nic, addresses[first]) {
			return &addresses[first], nil
		}
		if err := s.settle(ctx, nic, addresses, first); err != nil {
			return nil, err
		}
		if len(addresses) > 1 {
			if err := t.Wait(ctx); err != nil {
				return nil, err
			}
		}
	}
}

func has(nic types.InstanceNetworkInterface, a types.Address) bool {
	return sdk.ToString(a.NetworkInterfaceId) == sdk.ToString(nic.NetworkInterfaceId)
}

// settle releases all addresses but the first, unless they have come into use
// meanwhile, and gives that one to the interface. An interface that is gone
// needs none.
func (s *session) settle(ctx context.Context, nic types.InstanceNetworkInterface, addresses []types.Address, first int) error {
	for i, a := range addresses {
		if i == first {
			continue
		}
		if err := s.release(ctx, a.AllocationId); err != nil && !isCode(err, addressInUse) {
			return err
		}
	}
	if has(nic, addresses[first]) {
		return nil
	}
	_, err := s.ec2().AssociateAddress(ctx, &ec2.AssociateAddressInput{AllocationId: addresses[first].AllocationId, NetworkInterfaceId: nic.NetworkInterfaceId})
	switch {
	case isCode(err, "InvalidAllocationID.NotFound"):
		return nil // somebody else has decided otherwise
	case err != nil && refused(err):
		return errors.Join(err, s.release(ctx, addresses[first].AllocationId))
	}
	return err
}

// allocate makes an address and returns all that there are then. A call whose
// outcome is unknown is not repeated: what it made, if it did, is found by its
// tags.
func (p *Provider) allocate(ctx context.Context, s *session, pl *plan, instanceID, index string) ([]types.Address, error) {
	owned := tags.Merge(pl.owned, map[string]string{tagInstance: instanceID, tagNIC: index})
	made, err := s.ec2().AllocateAddress(ctx, &ec2.AllocateAddressInput{
		Domain:            types.DomainTypeVpc,
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeElasticIp, Tags: tagList(owned)}},
	}, func(o *ec2.Options) { o.RetryMaxAttempts = 1 })
	if err != nil && refused(err) {
		return nil, err
	}
	var addresses []types.Address
	seen, waitErr := p.look(ctx, p.timing.settle, func() (bool, error) {
		found, findErr := s.addressesOf(ctx, instanceID, index)
		addresses = found
		return findErr == nil && len(found) > 0, nil
	})
	if seen {
		return addresses, nil
	}
	if err = cmp.Or(err, waitErr); err != nil {
		return nil, err
	}
	return []types.Address{{AllocationId: made.AllocationId, PublicIp: made.PublicIp}}, nil
}

func (s *session) addresses(ctx context.Context, filters []types.Filter) ([]types.Address, error) {
	out, err := s.ec2().DescribeAddresses(ctx, &ec2.DescribeAddressesInput{Filters: filters})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out.Addresses, func(a, b types.Address) int {
		return cmp.Compare(sdk.ToString(a.AllocationId), sdk.ToString(b.AllocationId))
	})
	return out.Addresses, nil
}

// addressesOf returns those of an instance, or of one of its interfaces.
func (s *session) addressesOf(ctx context.Context, instanceID, index string) ([]types.Address, error) {
	match := map[string]string{tagInstance: instanceID}
	if index != "" {
		match[tagNIC] = index
	}
	return s.addresses(ctx, tagFilters(match))
}

// releaseAll releases the addresses of an instance. Whoever makes it may give it
// one at this moment, from which that one is taken again.
func (p *Provider) releaseAll(ctx context.Context, s *session, instanceID string) error {
	var errs []error
	_, err := p.look(ctx, p.timing.settle, func() (bool, error) {
		addresses, err := s.addressesOf(ctx, instanceID, "")
		taken := false
		errs = nil
		for _, address := range addresses {
			err := s.free(ctx, address)
			if isCode(err, addressInUse) {
				taken, err = true, fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
			}
			errs = append(errs, err)
		}
		return !taken, err
	})
	return errors.Join(append(errs, err)...)
}

const addressInUse = "InvalidIPAddress.InUse"

// free takes an address from its interface and releases it.
func (s *session) free(ctx context.Context, a types.Address) error {
	if a.AssociationId != nil {
		_, err := s.ec2().DisassociateAddress(ctx, &ec2.DisassociateAddressInput{AssociationId: a.AssociationId})
		if err != nil && !isCode(err, "InvalidAssociationID.NotFound") {
			return err
		}
	}
	return s.release(ctx, a.AllocationId)
}

func (s *session) release(ctx context.Context, allocation *string) error {
	_, err := s.ec2().ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: allocation})
	if isCode(err, "InvalidAllocationID.NotFound") {
		return nil
	}
	return err
}
