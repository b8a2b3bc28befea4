// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// verifyLimit bounds ConfigVerifier.
const verifyLimit = time.Minute

// ConfigVerifier implements provider.Provider. It reports everything that is
// wrong, unless the credentials get no token. The API has no dry run: what it
// finds out of permissions is which reads are allowed.
func (p *Provider) ConfigVerifier() error { return p.VerifyConfig(context.Background()) }

// VerifyConfig implements provider.ContextVerifier.
func (p *Provider) VerifyConfig(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	first := p.verifyReads(ctx)
	if errors.Is(first, provider.ErrUnauthenticated) {
		return fmt.Errorf("verify: -api-key (IBMCLOUD_API_KEY) or -iam-profile-id (IBMCLOUD_IAM_PROFILE_ID): %w", first)
	}
	vpc := func(id string) error {
		_, err := ask(ctx, p.api.GetVPCWithContext, vpcv1.GetVPCOptions{ID: &id})
		return err
	}
	key := func(id string) error {
		_, err := ask(ctx, p.api.GetKeyWithContext, vpcv1.GetKeyOptions{ID: &id})
		return err
	}
	group := func(id string) error {
		_, err := ask(ctx, p.api.GetSecurityGroupWithContext, vpcv1.GetSecurityGroupOptions{ID: &id})
		return err
	}
	checks := []func() error{
		func() error { return first },
		func() error { return p.verifyProfile(ctx) },
		func() error { _, err := p.groups(ctx); return err },
		func() error { return exists("vpc-id", p.cfg.VPC, vpc) },
		func() error { return exists("key-id", p.cfg.SSHKey, key) },
		func() error { return exists("secondary-security-group-id", p.cfg.SecondaryGroup, group) },
	}
	for _, id := range p.cfg.Images {
		checks = append(checks, func() error { return p.verifyImage(ctx, id) })
	}
	for _, id := range p.cfg.SecurityGroups {
		checks = append(checks, func() error { return exists("security-group-ids", id, group) })
	}
	for i, zone := range p.cfg.Zones {
		checks = append(checks, func() error { return p.verifySubnet(ctx, "primary-subnet-id", p.cfg.Subnets[i], zone) })
		if len(p.cfg.SecondarySubnets) > 0 {
			checks = append(checks, func() error { return p.verifySubnet(ctx, "secondary-subnet-id", p.cfg.SecondarySubnets[i], zone) })
		}
	}
	return classify(failure.Together(checks...))
}

func (p *Provider) verifyReads(ctx context.Context) error {
	_, err := ask(ctx, p.api.ListInstancesWithContext, vpcv1.ListInstancesOptions{Limit: new(int64(1))})
	if err == nil {
		_, err = ask(ctx, p.api.ListVolumesWithContext, vpcv1.ListVolumesOptions{Limit: new(int64(1))})
	}
	if err != nil {
		return fmt.Errorf("list instances and volumes: %w", classify(err))
	}
	return nil
}

func (p *Provider) verifyProfile(ctx context.Context) error {
	profiles, err := p.profiles(ctx)
	if err != nil {
		return err
	}
	if _, err := p.rank(ctx, provider.InstanceTypeSpec{}, p.cfg.Zones); err != nil && p.cfg.defaultProfile() != "" {
		return bad("profile-name", "%v", err)
	}
	for _, one := range profiles {
		if one.Name == p.cfg.defaultProfile() && !p.cfg.DisableCVM && one.Arch == "amd64" && !one.tdx {
			return bad("disable-cvm", "profile %s has no TDX: take another profile, or make ordinary VMs", one.Name)
		}
	}
	return nil
}

// setting returns which flag an error is about.
func setting(flagName, id string, err error) error {
	if failure.HasStatus(err, http.StatusNotFound) {
		return fmt.Errorf("%w: %w", provider.ErrNotFound, bad(flagName, "%s does not exist, or these credentials may not see it", id))
	}
	return config.About[Config](flagName, classify(err))
}

// exists asks for something by id, if there is one.
func exists(flagName, id string, get func(id string) error) error {
	if id == "" {
		return nil
	}
	return setting(flagName, id, get(id))
}

func (p *Provider) verifyImage(ctx context.Context, id string) error {
	img, err := ask(ctx, p.api.GetImageWithContext, vpcv1.GetImageOptions{ID: &id})
	if err != nil {
		return setting("image-id", id, err)
	}
	if status := value(img.Status); status != "available" && status != "deprecated" {
		return bad("image-id", "%s is %s and not available", id, status)
	}
	if size := value(img.MinimumProvisionedSize); p.cfg.RootDisk > 0 && size > p.cfg.RootDisk {
		return bad("ibmcloud-root-volume-size", "image %s needs %d GB, and the volume has %d", id, size, p.cfg.RootDisk)
	}
	return nil
}

func (p *Provider) verifySubnet(ctx context.Context, flagName, id, zone string) error {
	subnet, err := ask(ctx, p.api.GetSubnetWithContext, vpcv1.GetSubnetOptions{ID: &id})
	if err != nil {
		return setting(flagName, id, err)
	}
	var wrong []string
	if subnet.Zone != nil && value(subnet.Zone.Name) != zone {
		wrong = append(wrong, "is in zone "+value(subnet.Zone.Name)+" and not "+zone)
	}
	home, err := p.home(ctx)
	if err != nil {
		return err
	}
	if subnet.VPC != nil && value(subnet.VPC.ID) != home.vpc {
		wrong = append(wrong, "is in VPC "+value(subnet.VPC.ID)+" and not "+home.vpc)
	}
	if subnet.AvailableIpv4AddressCount != nil && *subnet.AvailableIpv4AddressCount < 1 {
		return fmt.Errorf("%w: -%s: subnet %s has no address left", provider.ErrCapacity, flagName, id)
	}
	if len(wrong) > 0 {
		return bad(flagName, "%s %s", id, strings.Join(wrong, ", "))
	}
	return nil
}
