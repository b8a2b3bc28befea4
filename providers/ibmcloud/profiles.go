// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/instancetypes"
)

// catalogueLife is how long profiles are taken as known.
const catalogueLife = time.Hour

// profile is an instance profile.
type profile struct {
	provider.InstanceType
	tdx bool
}

// InstanceTypes implements provider.InstanceTypeLister.
func (p *Provider) InstanceTypes(ctx context.Context) ([]provider.InstanceType, error) {
	profiles, err := p.profiles(ctx)
	if err != nil {
		return nil, err
	}
	var types []provider.InstanceType
	for _, one := range profiles {
		t := one.InstanceType
		t.Zones = slices.Clone(t.Zones)
		types = append(types, t)
	}
	return types, nil
}

// profiles returns the catalogue, which nobody may change.
func (p *Provider) profiles(ctx context.Context) ([]profile, error) {
	m := &p.memory
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: list profiles: %w", provider.ErrUnavailable, context.Cause(ctx))
	}
	if time.Now().Before(m.until) {
		return m.profiles, nil
	}
	all, reply, err := p.api.ListInstanceProfilesWithContext(ctx, &vpcv1.ListInstanceProfilesOptions{})
	if err := refused(reply, err); err != nil {
		return nil, fmt.Errorf("list profiles: %w", classify(err))
	}
	m.profiles = nil
	for i := range all.Profiles {
		if value(all.Profiles[i].Status) != "previous" || p.cfg.defaultProfile() == value(all.Profiles[i].Name) {
			m.profiles = append(m.profiles, p.profileOf(&all.Profiles[i]))
		}
	}
	m.until = time.Now().Add(catalogueLife)
	return m.profiles, nil
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
	profile provider.InstanceType
	at      int // of the zone, in the configuration
	zone    string
	image   string
	groups  []string
	home    home
}

// plan returns where the instance may be made, the best first: the best
// profile in every zone that has it, then the next profile.
func (p *Provider) plan(ctx context.Context, r *request) ([]candidate, error) {
	if err := r.refuse(); err != nil {
		return nil, err
	}
	ranked, err := p.rank(ctx, r.spec)
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
	for _, kind := range ranked {
		image, err := p.imageFor(ctx, r.spec.Image, kind.Arch)
		if err != nil {
			lacking = err
			continue
		}
		for at, zone := range p.cfg.Zones {
			if (len(kind.Zones) == 0 || slices.Contains(kind.Zones, zone)) && len(candidates) < maxCandidates {
				candidates = append(candidates, candidate{kind, at, zone, image, groups, home})
			}
		}
	}
	if len(candidates) == 0 && lacking != nil {
		return nil, lacking
	}
	return candidates, nil
}

// rank returns the profiles that fit, the best first. Confidential VMs leave
// out those for amd64 without TDX, unless somebody names one.
func (p *Provider) rank(ctx context.Context, spec provider.InstanceTypeSpec) ([]provider.InstanceType, error) {
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
	return instancetypes.Options{Types: types, Default: p.cfg.defaultProfile(), Allow: p.cfg.Profiles, Zones: p.cfg.Zones}.Rank(spec)
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
	if arch, ok := p.memory.images.Load(id); ok {
		return arch.(string), nil
	}
	img, reply, err := p.api.GetImageWithContext(ctx, &vpcv1.GetImageOptions{ID: &id})
	err = refused(reply, err)
	switch {
	case isStatus(err, http.StatusNotFound):
		return "", fmt.Errorf("%w: image %s (-image-id) does not exist, or these credentials may not see it", provider.ErrNotFound, id)
	case err != nil:
		return "", fmt.Errorf("look at image %s (-image-id): %w", id, classify(err))
	}
	arch := ""
	if img.OperatingSystem != nil {
		arch = value(img.OperatingSystem.Architecture)
	}
	p.memory.images.Store(id, arch)
	return arch, nil
}

// groups returns the security groups of the first interface: those named, or
// that of the cluster, or none, which is the VPC's default.
func (p *Provider) groups(ctx context.Context) ([]string, error) {
	if len(p.cfg.SecurityGroups) > 0 || p.cfg.ClusterID == "" {
		return p.cfg.SecurityGroups, nil
	}
	if known, ok := p.memory.groups.Load(p.cfg.ClusterID); ok {
		return known.([]string), nil
	}
	home, err := p.home(ctx)
	if err != nil {
		return nil, err
	}
	name := "kube-" + p.cfg.ClusterID
	options := &vpcv1.ListSecurityGroupsOptions{VPCID: &home.vpc, Limit: ptr(pageSize)}
	for {
		page, reply, err := p.api.ListSecurityGroupsWithContext(ctx, options)
		if err := refused(reply, err); err != nil {
			return nil, fmt.Errorf("look for security group %s (-cluster-id): %w", name, classify(err))
		}
		for _, group := range page.SecurityGroups {
			if value(group.Name) == name {
				ids := []string{value(group.ID)}
				p.memory.groups.Store(p.cfg.ClusterID, ids)
				return ids, nil
			}
		}
		next, err := page.GetNextStart()
		if err != nil || next == nil {
			return nil, errOr(err, bad("cluster-id", "VPC %s has no security group %s; name some with -security-group-ids (IBMCLOUD_SECURITY_GROUP_IDS)", home.vpc, name))
		}
		options.Start = next
	}
}

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
