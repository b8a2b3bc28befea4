// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"fmt"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
)

// Volumes go with their instance. Those that have stayed anyway, since the
// instance's launch failed half way, a launch template had changed since it was
// read, or somebody had detached them, are listed as instances by their own
// ids, and deleted by them.

// strayVolumes returns volumes with these tags that belong to no instance. A
// young one may be about to be attached.
func (p *Provider) strayVolumes(ctx context.Context, s *session, filters []types.Filter) ([]types.Volume, error) {
	filters = append(filters, filter("status", string(types.VolumeStateAvailable), string(types.VolumeStateError)))
	var list []types.Volume
	for in := (&ec2.DescribeVolumesInput{Filters: filters, MaxResults: sdk.Int32(500)}); ; {
		page, err := s.ec2.DescribeVolumes(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, v := range page.Volumes {
			if tagsOf(v.Tags)[provider.TagKey] != "" && v.CreateTime != nil && time.Since(*v.CreateTime) >= p.timing.stray {
				list = append(list, v)
			}
		}
		if in.NextToken = page.NextToken; sdk.ToString(in.NextToken) == "" {
			return list, nil
		}
	}
}

func (s *session) strayInstance(v types.Volume) provider.Instance {
	tags := tagsOf(v.Tags)
	return provider.Instance{
		ID: sdk.ToString(v.VolumeId), Name: tags[tagName], Key: tags[provider.TagKey], Tags: tags, State: provider.StateDeleting,
		Created: *v.CreateTime, Region: s.region, Zone: sdk.ToString(v.AvailabilityZone),
	}
}

// deleteVolume removes a volume of ours that belongs to no instance.
func (p *Provider) deleteVolume(ctx context.Context, s *session, id string) error {
	const notFound = "InvalidVolume.NotFound"
	out, err := s.ec2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
	switch {
	case isCode(err, notFound), err == nil && len(out.Volumes) == 0:
		return nil
	case err != nil:
		return err
	}
	v := out.Volumes[0]
	switch {
	case tagsOf(v.Tags)[provider.TagKey] == "":
		return fmt.Errorf("%w: it lacks the tag %s: it is somebody else's", provider.ErrPermissionDenied, provider.TagKey)
	case v.State == types.VolumeStateDeleting, v.State == types.VolumeStateDeleted:
		return nil
	case v.State != types.VolumeStateAvailable && v.State != types.VolumeStateError:
		return fmt.Errorf("%w: volume %s is %s: it goes with its instance", provider.ErrInvalidArgument, id, v.State)
	}
	_, err = s.ec2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id})
	if isCode(err, notFound) {
		return nil
	}
	return err
}
