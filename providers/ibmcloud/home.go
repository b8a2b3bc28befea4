// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"

	"github.com/IBM/vpc-go-sdk/vpcv1"
)

// home is where the VMs belong. The resource group may be empty, which is the
// account's default.
type home struct{ vpc, resourceGroup string }

// home returns what is set. Without a VPC it is that of the first subnet, and so
// is the resource group, unless one is set.
func (p *Provider) home(ctx context.Context) (home, error) {
	set := home{p.cfg.VPC, p.cfg.ResourceGroup}
	if set.vpc != "" {
		return set, nil
	}
	id := p.cfg.Subnets[0]
	if known, ok := p.memory.home.Load(id); ok {
		return known.(home), nil
	}
	subnet, reply, err := p.api.GetSubnetWithContext(ctx, &vpcv1.GetSubnetOptions{ID: &id})
	if err := refused(reply, err); err != nil {
		return home{}, setting("primary-subnet-id", id, err)
	}
	if subnet.VPC == nil || value(subnet.VPC.ID) == "" {
		return home{}, bad("vpc-id", "it is not set, and the cloud does not say in which VPC subnet %s is", id)
	}
	set.vpc = value(subnet.VPC.ID)
	if set.resourceGroup == "" && subnet.ResourceGroup != nil {
		set.resourceGroup = value(subnet.ResourceGroup.ID)
	}
	p.memory.home.Store(id, set)
	return set, nil
}
