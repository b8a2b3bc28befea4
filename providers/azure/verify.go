// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
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
	_, err := p.publicKey(ctx)
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
func about(flag string, err error) error { return config.About[Config](flag, classify(err)) }

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

// networkAPIVersion is that with which subnets and security groups are read.
const networkAPIVersion = "2025-05-01"

func (p *Provider) verifySubnet(ctx context.Context) error {
	return about("subnetid", p.cloud.get(ctx, p.cloud.url(p.cfg.SubnetID, networkAPIVersion), nil))
}

func (p *Provider) verifySecurityGroup(ctx context.Context) error {
	if p.cfg.SecurityGroupID == "" {
		return nil
	}
	var group struct {
		Location string `json:"location"`
	}
	err := p.cloud.get(ctx, p.cloud.url(p.cfg.SecurityGroupID, networkAPIVersion), &group)
	if err == nil && !strings.EqualFold(group.Location, p.cfg.Region) {
		err = fmt.Errorf("%w: it is in region %s, and -region (AZURE_REGION) is %s", provider.ErrInvalidArgument, group.Location, p.cfg.Region)
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
	err := pages(ctx, p.cloud.usage.NewListPager(p.cfg.Region, nil), func(page armcompute.UsageClientListResponse) {
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
	})
	return errors.Join(append(errs, about("region", err))...)
}

//go:embed actions.txt
var actionList string

// groupActions are what the provider may do in the resource group; the role in
// docs/providers/azure.md has the same, from the calls that tests have seen.
var groupActions = strings.Fields(actionList)

const (
	joinSubnet = "Microsoft.Network/virtualNetworks/subnets/join/action"
	joinGroup  = "Microsoft.Network/networkSecurityGroups/join/action"
)

// permission is what somebody may do at a scope (Permissions, List For Resource
// Group, api-version 2022-04-01).
type permission struct {
	Actions    []string `json:"actions"`
	NotActions []string `json:"notActions"`
}

func (p permission) allows(action string) bool {
	return anyMatch(p.Actions, action) && !anyMatch(p.NotActions, action)
}

// anyMatch reports whether an action is like one of the patterns, whose * stands for any text.
func anyMatch(patterns []string, action string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		like, err := regexp.MatchString("(?i)^"+strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")+"$", action)
		return err == nil && like
	})
}

// permissions returns what we may do at a scope, which is a resource id.
func (p *Provider) permissions(ctx context.Context, scope string) ([]permission, error) {
	var all []permission
	for next := p.cloud.url(scope+"/providers/Microsoft.Authorization/permissions", "2022-04-01"); next != ""; {
		var page struct {
			Value    []permission `json:"value"`
			NextLink string       `json:"nextLink"`
		}
		if err := p.cloud.get(ctx, next, &page); err != nil {
			return nil, err
		}
		all, next = append(all, page.Value...), page.NextLink
	}
	return all, nil
}

// lacking returns the actions that we may not do at a scope.
func (p *Provider) lacking(ctx context.Context, scope string, actions ...string) ([]string, error) {
	granted, err := p.permissions(ctx, scope)
	if err != nil {
		return nil, fmt.Errorf("permissions at %s: %w", scope, err)
	}
	allowed := func(action string) bool {
		return slices.ContainsFunc(granted, func(p permission) bool { return p.allows(action) })
	}
	return slices.DeleteFunc(slices.Clone(actions), allowed), nil
}
