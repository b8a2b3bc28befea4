// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/provider/kit/places"
)

// catalogueLife is how long profiles are taken as known.
const catalogueLife = time.Hour

// profile is an instance profile.
type profile struct {
	provider.InstanceType
	tdx bool
}

// InstanceTypes implements provider.InstanceTypeLister.
func (p *Provider) InstanceTypes(ctx context.Context) (types []provider.InstanceType, err error) {
	defer explain(&err, "list profiles")
	profiles, err := p.profiles(ctx)
	for _, one := range profiles {
		t := one.InstanceType
		t.Zones = slices.Clone(t.Zones)
		types = append(types, t)
	}
	return types, err
}

// profiles returns the catalogue, which nobody may change.
func (p *Provider) profiles(ctx context.Context) ([]profile, error) {
	return p.known.profiles.Get(ctx, "", func() ([]profile, time.Time, error) {
		all, err := ask(ctx, p.api.ListInstanceProfilesWithContext, vpcv1.ListInstanceProfilesOptions{})
		if err != nil {
			return nil, time.Time{}, err
		}
		var profiles []profile
		for i := range all.Profiles {
			if value(all.Profiles[i].Status) != "previous" || p.cfg.defaultProfile() == value(all.Profiles[i].Name) {
				profiles = append(profiles, p.profileOf(&all.Profiles[i]))
			}
		}
		return profiles, time.Now().Add(catalogueLife), nil
	})
}

func (p *Provider) profileOf(from *vpcv1.InstanceProfile) profile {
	one := profile{InstanceType: provider.InstanceType{Name: value(from.Name)}}
	if cpus, ok := from.VcpuCount.(*vpcv1.InstanceProfileVcpu); ok {
		one.VCPUs = value(cpus.Value)
	}
	if memory, ok := from.Memory.(*vpcv1.InstanceProfileMemory); ok {
		one.Memory = value(memory.Value) << 10 // GiB
	}
	if gpus, ok := from.GpuCount.(*vpcv1.InstanceProfileGpu); ok && gpus != nil {
		one.GPUs = value(gpus.Value)
	}
	if from.GpuModel != nil && len(from.GpuModel.Values) > 0 {
		one.GPU = from.GpuModel.Values[0]
		if from.GpuManufacturer != nil && len(from.GpuManufacturer.Values) > 0 {
			one.GPU = from.GpuManufacturer.Values[0] + " " + one.GPU
		}
	}
	if from.VcpuArchitecture != nil {
		one.Arch = value(from.VcpuArchitecture.Value)
	}
	for _, zone := range from.Zones {
		one.Zones = append(one.Zones, value(zone.Name))
	}
	if from.ConfidentialComputeModes != nil {
		one.tdx = slices.Contains(from.ConfidentialComputeModes.Values, "tdx")
	}
	one.Price, _ = strconv.ParseFloat(p.cfg.Prices[one.Name], 64) // validate has seen to it
	return one
}

// candidate is a profile in a zone, with the image of its architecture.
type candidate struct {
	places.Place
	at     int // of the zone, in the configuration
	image  string
	groups []string
	home   home
}

// plan returns where the instance may be made, the best first: the best
// profile in every zone that has it, then the next profile.
func (p *Provider) plan(ctx context.Context, r *request) ([]candidate, error) {
	if err := r.refuse(); err != nil {
		return nil, err
	}
	zones, err := places.Zones(p.cfg.Zones, r.spec.Zone)
	if err != nil {
		return nil, fmt.Errorf("%w (-zone-name, IBMCLOUD_ZONE)", err)
	}
	ranked, err := p.rank(ctx, r.spec, zones)
	if err != nil {
		return nil, err
	}
	groups, err := p.groups(ctx)
	if err != nil {
		return nil, err
	}
	home, err := p.home(ctx)
	if err != nil {
		return nil, err
	}
	var candidates []candidate
	var lacking error
	for _, place := range places.Of(ranked, zones, math.MaxInt) {
		if len(candidates) == maxCandidates {
			break
		}
		image, err := p.imageFor(ctx, r.spec.Image, place.Type.Arch)
		if err != nil {
			lacking = err
			continue
		}
		candidates = append(candidates, candidate{place, slices.Index(p.cfg.Zones, place.Zone), image, groups, home})
	}
	if len(candidates) == 0 && lacking != nil {
		return nil, lacking
	}
	return candidates, nil
}

// rank returns the profiles that fit and that one of the zones has, the best first. Confidential VMs leave
// out those for amd64 without TDX, unless somebody names one.
func (p *Provider) rank(ctx context.Context, spec provider.InstanceTypeSpec, zones []string) ([]provider.InstanceType, error) {
	profiles, err := p.profiles(ctx)
	if err != nil {
		return nil, err
	}
	var types []provider.InstanceType
	for _, one := range profiles {
		if p.cfg.DisableCVM || one.tdx || one.Arch != "amd64" || one.Name == p.cfg.defaultProfile() || one.Name == spec.InstanceType {
			types = append(types, one.InstanceType)
		}
	}
	return instancetypes.Options{Types: types, Default: p.cfg.defaultProfile(), Allow: p.cfg.Profiles, Zones: zones}.Rank(spec)
}

// imageFor returns the image of an architecture: the pod's, if it names one.
func (p *Provider) imageFor(ctx context.Context, asked, arch string) (string, error) {
	images := p.cfg.Images
	if asked != "" {
		images = []string{asked}
	}
	var seen []string
	for _, id := range images {
		has, err := p.imageArch(ctx, id)
		if err != nil {
			return "", err
		}
		if has == arch || arch == "" {
			return id, nil
		}
		seen = append(seen, id+" ("+has+")")
	}
	return "", bad("image-id", "no image is for %s: %v", arch, seen)
}

func (p *Provider) imageArch(ctx context.Context, id string) (string, error) {
	return p.known.images.Get(ctx, id, func() (string, time.Time, error) {
		img, err := ask(ctx, p.api.GetImageWithContext, vpcv1.GetImageOptions{ID: &id})
		switch {
		case err != nil:
			return "", time.Time{}, setting("image-id", id, err)
		case img.OperatingSystem == nil:
			return "", time.Time{}, nil
		}
		return value(img.OperatingSystem.Architecture), time.Time{}, nil
	})
}

// groups returns the security groups of the first interface: those named, or
// that of the cluster, or none, which is the VPC's default.
func (p *Provider) groups(ctx context.Context) ([]string, error) {
	if len(p.cfg.SecurityGroups) > 0 || p.cfg.ClusterID == "" {
		return p.cfg.SecurityGroups, nil
	}
	home, err := p.home(ctx)
	if err != nil {
		return nil, err
	}
	return p.known.groups.Get(ctx, "", func() ([]string, time.Time, error) {
		group, err := p.clusterGroup(ctx, home)
		return []string{group}, time.Time{}, err
	})
}

func (p *Provider) clusterGroup(ctx context.Context, home home) (id string, err error) {
	name := "kube-" + p.cfg.ClusterID
	err = pages(func(start *string) (*vpcv1.SecurityGroupCollection, error) {
		page, err := ask(ctx, p.api.ListSecurityGroupsWithContext, vpcv1.ListSecurityGroupsOptions{VPCID: &home.vpc, Limit: new(pageSize), Start: start})
		if err != nil {
			return nil, fmt.Errorf("look for security group %s (-cluster-id): %w", name, err)
		}
		for _, group := range page.SecurityGroups {
			if value(group.Name) == name {
				id = value(group.ID)
			}
		}
		return page, nil
	})
	if err == nil && id == "" {
		err = bad("cluster-id", "VPC %s has no security group %s; name some with -security-group-ids (IBMCLOUD_SECURITY_GROUP_IDS)", home.vpc, name)
	}
	return id, err
}

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
	return p.known.home.Get(ctx, "", func() (home, time.Time, error) {
		id := p.cfg.Subnets[0]
		subnet, err := ask(ctx, p.api.GetSubnetWithContext, vpcv1.GetSubnetOptions{ID: &id})
		switch {
		case err != nil:
			return home{}, time.Time{}, setting("primary-subnet-id", id, err)
		case subnet.VPC == nil || value(subnet.VPC.ID) == "":
			return home{}, time.Time{}, bad("vpc-id", "it is not set, and the cloud does not say in which VPC subnet %s is", id)
		}
		set.vpc = value(subnet.VPC.ID)
		if set.resourceGroup == "" && subnet.ResourceGroup != nil {
			set.resourceGroup = value(subnet.ResourceGroup.ID)
		}
		return set, time.Time{}, nil
	})
}
