// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	ecs "github.com/alibabacloud-go/ecs-20140526/v7/client"
	"github.com/alibabacloud-go/tea/dara"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/places"
)

// ConfigVerifier implements provider.Provider. It reports everything that is
// wrong, unless the cloud does not know who asks.
func (p *Provider) ConfigVerifier() error { return p.VerifyConfig(context.Background()) }

// VerifyConfig implements provider.ContextVerifier.
func (p *Provider) VerifyConfig(ctx context.Context) (err error) {
	defer explain(&err, "verify")
	ctx, cancel := context.WithTimeout(ctx, p.pace.verify)
	defer cancel()
	var errs []error
	vswitches, err := p.lookUpVSwitches(ctx)
	if errors.Is(err, provider.ErrUnauthenticated) || errors.Is(err, provider.ErrUnavailable) {
		return err
	}
	errs = append(errs, err, checkFreeAddress(vswitches))
	for _, check := range []func(context.Context, []vswitch) error{
		p.verifyTypes, p.verifyImage, p.verifyGroups, p.verifyKeyPair, p.verifyRights, p.verifyRun,
	} {
		errs = append(errs, check(ctx, vswitches))
	}
	return errors.Join(errs...)
}

// checkFreeAddress returns when no vSwitch has an address left.
func checkFreeAddress(vswitches []vswitch) error {
	if len(vswitches) == 0 || slices.ContainsFunc(vswitches, func(at vswitch) bool { return at.free > 0 }) {
		return nil
	}
	return fmt.Errorf("%w: no vSwitch of -vswitch-id (VSWITCH_ID) has a free address", provider.ErrCapacity)
}

func (p *Provider) verifyTypes(ctx context.Context, vswitches []vswitch) error {
	rows, _, err := p.describeTypes(ctx, []string{p.cfg.InstanceType})
	if err != nil && !errors.Is(err, provider.ErrNotFound) && !errors.Is(err, provider.ErrInvalidArgument) {
		return err
	}
	if len(rows) == 0 {
		return bad("instance-type", "%s has no type %q (INSTANCE_TYPE is read too)", p.cfg.Region, p.cfg.InstanceType)
	}
	stock, err := p.stock(ctx, p.cfg.InstanceType, "Available")
	if err != nil {
		return err
	}
	zones := zonesOf(vswitches)
	if len(zones) > 0 && !slices.ContainsFunc(zones, func(zone string) bool { return slices.Contains(stock[p.cfg.InstanceType], zone) }) {
		return fmt.Errorf("%w: -instance-type (PODVM_INSTANCE_TYPE): %s is not to be had in %s, the zones of VSWITCH_ID; zones that have it: %s",
			provider.ErrCapacity, p.cfg.InstanceType, strings.Join(zones, ", "), orNone(stock[p.cfg.InstanceType]))
	}
	return nil
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

func (p *Provider) verifyImage(ctx context.Context, _ []vswitch) error {
	rows, err := p.images(ctx, &ecs.DescribeImagesRequest{ImageId: new(p.cfg.ImageID)})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return bad("imageid", "there is no image %q in %s", p.cfg.ImageID, p.cfg.Region)
	}
	image := rows[0]
	if status := dara.StringValue(image.Status); status != "Available" {
		return bad("imageid", "image %s is %s, not Available", p.cfg.ImageID, status)
	}
	if size := int64(dara.Int32Value(image.Size)); size > p.cfg.DiskSize {
		return bad("system-disk-size", "%d GiB is less than the %d of image %s", p.cfg.DiskSize, size, p.cfg.ImageID)
	}
	return nil
}

func (p *Provider) verifyGroups(ctx context.Context, vswitches []vswitch) error {
	ids, err := json.Marshal(p.cfg.SecurityGroups)
	if err != nil {
		return fmt.Errorf("encode %v: %w", p.cfg.SecurityGroups, err)
	}
	response, err := call(ctx, p.api, "ecs:DescribeSecurityGroups", p.api.ecs().DescribeSecurityGroupsWithContext, &ecs.DescribeSecurityGroupsRequest{
		RegionId: new(p.cfg.Region), SecurityGroupIds: new(string(ids)), MaxResults: new(int32(100)),
	})
	if err != nil {
		return err
	}
	in := map[string]string{}
	if response.Body != nil && response.Body.SecurityGroups != nil {
		for _, group := range response.Body.SecurityGroups.SecurityGroup {
			in[dara.StringValue(group.SecurityGroupId)] = dara.StringValue(group.VpcId)
		}
	}
	var errs []error
	for _, id := range p.cfg.SecurityGroups {
		network, there := in[id]
		switch {
		case !there:
			errs = append(errs, bad("security-group-ids", "there is no %s in %s", id, p.cfg.Region))
		case len(vswitches) > 0 && network != vswitches[0].vpc:
			errs = append(errs, bad("security-group-ids", "%s is in %s, but the vSwitch %s in %s", id, network, vswitches[0].id, vswitches[0].vpc))
		}
	}
	return errors.Join(errs...)
}

func (p *Provider) verifyKeyPair(ctx context.Context, _ []vswitch) error {
	if p.cfg.KeyPair == "" {
		return nil
	}
	response, err := call(ctx, p.api, "ecs:DescribeKeyPairs", p.api.ecs().DescribeKeyPairsWithContext, &ecs.DescribeKeyPairsRequest{
		RegionId: new(p.cfg.Region), KeyPairName: new(p.cfg.KeyPair),
	})
	if err != nil {
		return err
	}
	if response.Body == nil || response.Body.KeyPairs == nil || len(response.Body.KeyPairs.KeyPair) == 0 {
		return bad("keyname", "there is no key pair %q in %s", p.cfg.KeyPair, p.cfg.Region)
	}
	return nil
}

// verifyRights asks for rights that no other check has used.
func (p *Provider) verifyRights(ctx context.Context, _ []vswitch) error {
	_, err := call(ctx, p.api, "ecs:DescribeInstances", p.api.ecs().DescribeInstancesWithContext,
		&ecs.DescribeInstancesRequest{RegionId: new(p.cfg.Region), DryRun: new(true)})
	_, addressErr := p.addressesBy(ctx, map[string]string{tagInstance: "none"})
	return errors.Join(dryRun(err), addressErr)
}

// verifyRun makes a dry run of a creation. It stops at the first error, which
// the other checks may have reported already.
func (p *Provider) verifyRun(ctx context.Context, _ []vswitch) error {
	pl := &plan{key: "verify", name: "podvm-verify", image: p.cfg.ImageID, tags: map[string]string{}, owner: map[string]string{}}
	to := target{places.Place{Type: provider.InstanceType{Name: p.cfg.InstanceType}}, p.cfg.VSwitchIDs[0]}
	request := p.request(pl, to, 0)
	request.DryRun, request.ClientToken = new(true), nil
	_, err := call(ctx, p.api, "ecs:RunInstances", p.api.ecs().RunInstancesWithContext, request)
	return dryRun(err)
}

// dryRun takes the answer to a call that was only tried.
func dryRun(err error) error {
	if failure.HasCode(err, codeDryRun) {
		return nil
	}
	return err
}
