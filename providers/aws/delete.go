// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
)

// DeleteInstance implements provider.Provider. Elastic addresses go first: as
// long as the instance is there, it is listed.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) error {
	if !instanceSyntax.MatchString(instanceID) && !volumeSyntax.MatchString(instanceID) {
		return nil // EC2 has no such ids
	}
	ctx, done, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return classify("delete instance "+instanceID, p.delete(ctx, instanceID))
}

func (p *Provider) delete(ctx context.Context, instanceID string) error {
	s, err := p.session(ctx)
	if err != nil {
		return err
	}
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
	_, err = s.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{instanceID}})
	if isCode(err, notFoundInstance) {
		return nil // it was there just now
	}
	return err
}
