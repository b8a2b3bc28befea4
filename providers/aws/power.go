// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"encoding/base64"
	"fmt"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
)

// PowerOff implements provider.PowerController.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) error {
	off := map[types.InstanceStateName]bool{types.InstanceStateNameStopping: true, types.InstanceStateNameStopped: true}
	return p.power(ctx, "power off instance "+instanceID, instanceID, off, func(ctx context.Context, s *session) error {
		_, err := s.ec2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{instanceID}})
		return err
	})
}

// PowerOn implements provider.PowerController.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) error {
	on := map[types.InstanceStateName]bool{types.InstanceStateNamePending: true, types.InstanceStateNameRunning: true}
	return p.power(ctx, "power on instance "+instanceID, instanceID, on, func(ctx context.Context, s *session) error {
		_, err := s.ec2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{instanceID}})
		return err
	})
}

// power asks for a state until EC2 takes the request: instances between two
// states take none.
func (p *Provider) power(ctx context.Context, what, instanceID string, wanted map[types.InstanceStateName]bool, request func(context.Context, *session) error) error {
	return p.with(ctx, what, instanceID, p.timing.settle, func(ctx context.Context, s *session, i *types.Instance) error {
		for w := p.newBackoff(0); ; {
			if ending(i) {
				return fmt.Errorf("%w: it is being deleted", provider.ErrNotFound)
			}
			if wanted[stateName(i)] {
				return nil
			}
			err := request(ctx, s)
			if !isCode(err, "IncorrectInstanceState") {
				return err
			}
			if _, err := w.wait(ctx); err != nil {
				return err
			}
			if i, err = p.await(ctx, s, i, func(*types.Instance) bool { return true }); err != nil && !ending(i) {
				return err
			}
		}
	})
}

// Console implements provider.ConsoleReader. EC2 keeps the last 64 KiB.
func (p *Provider) Console(ctx context.Context, instanceID string, tailBytes int64) ([]byte, error) {
	var text []byte
	err := p.with(ctx, "console of instance "+instanceID, instanceID, p.timing.settle, func(ctx context.Context, s *session, i *types.Instance) error {
		if ending(i) {
			return fmt.Errorf("%w: it is being deleted", provider.ErrNotFound)
		}
		in := &ec2.GetConsoleOutputInput{InstanceId: &instanceID, Latest: sdk.Bool(true)}
		out, err := s.ec2.GetConsoleOutput(ctx, in)
		if isCode(err, "UnsupportedOperation") { // only Nitro types know the latest
			in.Latest = nil
			out, err = s.ec2.GetConsoleOutput(ctx, in)
		}
		if err != nil {
			return err
		}
		text, err = base64.StdEncoding.DecodeString(sdk.ToString(out.Output))
		return err
	})
	return text[max(0, int64(len(text))-tailBytes):], err
}
