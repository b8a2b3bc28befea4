// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"

	"github.com/outrigger/outrigger/provider"
)

// verifyLimit bounds ConfigVerifier.
const verifyLimit = 2 * time.Minute

// ConfigVerifier implements provider.Provider. It reports everything that is
// wrong, unless Azure cannot be asked.
func (p *Provider) ConfigVerifier() error { return p.VerifyConfig(context.Background()) }

// VerifyConfig implements provider.ContextVerifier.
func (p *Provider) VerifyConfig(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	if err := p.verifyGroup(ctx); err != nil {
		return err
	}
	errs := []error{
		p.verifyScope(ctx, "subnetid", p.cfg.SubnetID, joinSubnet),
		p.verifyScope(ctx, "securitygroupid", p.cfg.SecurityGroupID, joinGroup),
		p.verifySubnet(ctx), p.verifySecurityGroup(ctx), p.verifyImage(ctx), p.verifySize(ctx),
	}
	_, err := p.publicKey()
	return errors.Join(append(errs, err)...)
}

// verifyGroup asks for the permissions in the resource group: without
// credentials, subscription and group nothing else can be asked.
func (p *Provider) verifyGroup(ctx context.Context) error {
	scope := "/subscriptions/" + p.cfg.SubscriptionID + "/resourceGroups/" + p.cfg.ResourceGroup
	missing, err := p.lacking(ctx, scope, groupActions...)
	if err != nil {
		return p.blame(classify(err))
	}
	missing = slices.DeleteFunc(missing, func(action string) bool {
		return strings.Contains(action, "retrieveBootDiagnosticsData") && !p.cfg.BootDiagnostics
	})
	if len(missing) > 0 {
		return fmt.Errorf("%w: in resource group %s the application may not do %s: give it a role with these actions",
			provider.ErrPermissionDenied, p.cfg.ResourceGroup, strings.Join(missing, ", "))
	}
	return nil
}

// blame names the setting that the resource manager found wrong.
func (p *Provider) blame(err error) error {
	switch codeOf(err) {
	case "SubscriptionNotFound", "InvalidSubscriptionId":
		return about("subscriptionid", err)
	case "ResourceGroupNotFound":
		return about("resourcegroup", err)
	}
	return err
}

// about names a setting in front of what the cloud said, whose class stays.
func about(flag string, err error) error {
	if err == nil {
		return nil
	}
	title := strings.TrimPrefix(wrong(flag, "").Error(), provider.ErrInvalidArgument.Error()+": ")
	return fmt.Errorf("%s%w", title, classify(err))
}

func (p *Provider) verifyScope(ctx context.Context, flag, id, action string) error {
	if id == "" {
		return nil
	}
	missing, err := p.lacking(ctx, id, action)
	if err != nil {
		return about(flag, err)
	}
	if len(missing) > 0 {
		return about(flag, fmt.Errorf("%w: at %s the application may not do %s", provider.ErrPermissionDenied, id, action))
	}
	return nil
}

func (p *Provider) verifySubnet(ctx context.Context) error {
	id := p.cfg.SubnetID
	subnets, err := armnetwork.NewSubnetsClient(part(id, "subscriptions"), p.cloud.credential, p.cloud.options)
	if err == nil {
		_, err = subnets.Get(ctx, part(id, "resourceGroups"), part(id, "virtualNetworks"), last(id), nil)
	}
	return about("subnetid", err)
}

func (p *Provider) verifySecurityGroup(ctx context.Context) error {
	id := p.cfg.SecurityGroupID
	if id == "" {
		return nil
	}
	groups, err := armnetwork.NewSecurityGroupsClient(part(id, "subscriptions"), p.cloud.credential, p.cloud.options)
	if err != nil {
		return about("securitygroupid", err)
	}
	group, err := groups.Get(ctx, part(id, "resourceGroups"), last(id), nil)
	if err == nil && !strings.EqualFold(deref(group.Location), p.cfg.Region) {
		err = fmt.Errorf("%w: it is in region %s, and -region (AZURE_REGION) is %s", provider.ErrInvalidArgument, deref(group.Location), p.cfg.Region)
	}
	return about("securitygroupid", err)
}

func (p *Provider) verifyImage(ctx context.Context) error {
	i, err := parseImage(p.cfg.ImageID)
	if err != nil {
		return err
	}
	return about("imageid", i.check(ctx, p.cloud, p.cfg.Region, p.cfg.SubscriptionID))
}

// verifySize looks at the default size, and at the quota for one VM of it.
func (p *Provider) verifySize(ctx context.Context) error {
	all, err := p.catalogue(ctx)
	if err != nil {
		return about("region", err)
	}
	if len(all) == 0 {
		return wrong("region", "Azure has no VM sizes in region %s", p.cfg.Region)
	}
	i := slices.IndexFunc(all, func(s vmSize) bool { return strings.EqualFold(s.Name, p.cfg.Size) })
	if i < 0 {
		return wrong("instance-size", "region %s has no VM size %s", p.cfg.Region, p.cfg.Size)
	}
	size := all[i]
	if reason := p.unfit(size); reason != "" {
		return wrong("instance-size", "%s: %s", size.Name, reason)
	}
	for _, zone := range p.cfg.Zones {
		if !slices.Contains(size.Zones, zone) {
			err = errors.Join(err, wrong("zone", "%s is not to be had in zone %s, only in %s", size.Name, zone, strings.Join(size.Zones, ", ")))
		}
	}
	return errors.Join(err, p.verifyQuota(ctx, size))
}

// verifyQuota compares what is left with one VM.
func (p *Provider) verifyQuota(ctx context.Context, size vmSize) error {
	quotas := []string{"virtualMachines", "cores", size.family}
	if p.cfg.Spot {
		quotas = []string{"virtualMachines", "lowPriorityCores"}
	}
	var errs []error
	for pager := p.cloud.usage.NewListPager(p.cfg.Region, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return about("region", err)
		}
		for _, u := range page.Value {
			if u.Name == nil || !slices.ContainsFunc(quotas, func(q string) bool { return strings.EqualFold(q, deref(u.Name.Value)) }) {
				continue
			}
			wanted := size.VCPUs
			if deref(u.Name.Value) == "virtualMachines" {
				wanted = 1
			}
			if left := deref(u.Limit) - int64(deref(u.CurrentValue)); left < wanted {
				errs = append(errs, fmt.Errorf("%w: -instance-size (AZURE_INSTANCE_SIZE): %s takes %d of %s, and region %s has %d of %d left: ask for more quota",
					provider.ErrQuota, size.Name, wanted, deref(u.Name.LocalizedValue), p.cfg.Region, max(left, 0), deref(u.Limit)))
			}
		}
	}
	return errors.Join(errs...)
}
