// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
)

// PowerOff implements provider.PowerController.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power off instance %s", instanceID)
	off := []types.InstanceStateName{types.InstanceStateNameStopping, types.InstanceStateNameStopped}
	return p.power(ctx, instanceID, off, func(ctx context.Context, s *session) error {
		_, err := s.ec2().StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{instanceID}})
		return err
	})
}

// PowerOn implements provider.PowerController.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power on instance %s", instanceID)
	on := []types.InstanceStateName{types.InstanceStateNamePending, types.InstanceStateNameRunning}
	return p.power(ctx, instanceID, on, func(ctx context.Context, s *session) error {
		_, err := s.ec2().StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{instanceID}})
		return err
	})
}

// power asks for a state until EC2 takes the request: instances between two
// states take none.
func (p *Provider) power(ctx context.Context, instanceID string, wanted []types.InstanceStateName, request func(context.Context, *session) error) error {
	return p.with(ctx, instanceID, p.timing.settle, func(ctx context.Context, s *session, i *types.Instance) error {
		return p.pace().Until(ctx, func() (bool, error) {
			seen, err := p.find(ctx, s, id(i), p.timing.token)
			switch {
			case err != nil:
				return false, err
			case seen == nil || ending(seen):
				return false, fmt.Errorf("%w: it is being deleted", provider.ErrNotFound)
			case slices.Contains(wanted, stateName(seen)):
				return true, nil
			}
			err = request(ctx, s)
			return err == nil, unless(err, "IncorrectInstanceState")
		})
	})
}

// Console implements provider.ConsoleReader. EC2 keeps the last 64 KiB.
func (p *Provider) Console(ctx context.Context, instanceID string, tailBytes int64) (text []byte, err error) {
	defer explain(&err, "console of instance %s", instanceID)
	err = p.with(ctx, instanceID, p.timing.settle, func(ctx context.Context, s *session, i *types.Instance) error {
		if ending(i) {
			return fmt.Errorf("%w: it is being deleted", provider.ErrNotFound)
		}
		in := &ec2.GetConsoleOutputInput{InstanceId: &instanceID, Latest: sdk.Bool(true)}
		out, err := s.ec2().GetConsoleOutput(ctx, in)
		if isCode(err, "UnsupportedOperation") { // only Nitro types know the latest
			in.Latest = nil
			out, err = s.ec2().GetConsoleOutput(ctx, in)
		}
		if err != nil {
			return err
		}
		text, err = base64.StdEncoding.DecodeString(sdk.ToString(out.Output))
		return err
	})
	return text[max(0, int64(len(text))-tailBytes):], err
}

// DeleteInstance implements provider.Provider. Elastic addresses go first: as
// long as the instance is there, it is listed.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "delete instance %s", instanceID)
	if !instanceSyntax.MatchString(instanceID) && !volumeSyntax.MatchString(instanceID) {
		return nil // EC2 has no such ids
	}
	ctx, s, done, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if volumeSyntax.MatchString(instanceID) {
		return p.deleteVolume(ctx, s, instanceID)
	}
	i, err := p.find(ctx, s, instanceID, p.timing.settle)
	switch {
	case err != nil:
		return err
	case i == nil || stateName(i) == types.InstanceStateNameTerminated:
		return p.releaseAll(ctx, s, instanceID)
	case !ours(i):
		return fmt.Errorf("%w: it lacks the tag %s: it is somebody else's", provider.ErrPermissionDenied, provider.TagKey)
	}
	if reach(tagsOf(i.Tags)[tagReach]) == reachElastic {
		if err := p.releaseAll(ctx, s, instanceID); err != nil {
			return err
		}
	}
	if ending(i) {
		return nil
	}
	_, err = s.ec2().TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{instanceID}})
	if isCode(err, notFoundInstance) {
		return nil // it was there just now
	}
	return err
}
