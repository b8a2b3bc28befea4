// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/instancetypes"
)

// vmSize is a row of the Resource SKUs of our region.
type vmSize struct {
	provider.InstanceType
	family string
	// confidential is the kind of confidential VM (SNP, TDX), or nothing.
	confidential string
	// trusted reports whether trusted launch works, spot whether spot VMs may
	// have it.
	trusted, spot bool
	// refused is why it is not available here; empty if it is.
	refused string
}

// catalogue returns every VM size of the region. The list has megabytes.
func (p *Provider) catalogue(ctx context.Context) ([]vmSize, error) {
	return p.sizes.Get(ctx, "", func() ([]vmSize, time.Time, error) {
		list, err := p.fetchSizes(ctx)
		if err != nil {
			err = fmt.Errorf("list VM sizes: %w", err)
		}
		return list, time.Now().Add(p.tempo.catalogue), err
	})
}

func (p *Provider) fetchSizes(ctx context.Context) ([]vmSize, error) {
	var list []vmSize
	pager := p.cloud.skus.NewListPager(&armcompute.ResourceSKUsClientListOptions{Filter: to.Ptr("location eq '" + p.cfg.Region + "'")})
	err := pages(ctx, pager, func(page armcompute.ResourceSKUsClientListResponse) {
		for _, sku := range page.Value {
			if deref(sku.ResourceType) == "virtualMachines" {
				list = append(list, p.sizeOf(sku))
			}
		}
	})
	slices.SortFunc(list, func(a, b vmSize) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(list, func(a, b vmSize) bool { return a.Name == b.Name }), err
}

func (p *Provider) sizeOf(sku *armcompute.ResourceSKU) vmSize {
	has := map[string]string{}
	for _, c := range sku.Capabilities {
		has[deref(c.Name)] = deref(c.Value)
	}
	s := vmSize{
		family: deref(sku.Family), confidential: has["ConfidentialComputingType"],
		trusted: !isTrue(has["TrustedLaunchDisabled"]) && strings.Contains(has["HyperVGenerations"], "V2"),
		spot:    isTrue(has["LowPriorityCapable"]),
	}
	s.Name = deref(sku.Name)
	// vCPUsAvailable is less where a size has cores that are switched off.
	s.VCPUs = number(cmp.Or(has["vCPUsAvailable"], has["vCPUs"]))
	if memory, err := strconv.ParseFloat(has["MemoryGB"], 64); err == nil {
		s.Memory = int64(memory * 1024)
	}
	s.Arch = map[string]string{"x64": "amd64", "Arm64": "arm64"}[has["CpuArchitectureType"]]
	if s.GPUs = number(has["GPUs"]); s.GPUs > 0 {
		s.GPU = gpuModel(s.Name)
	}
	s.Price = p.cfg.Prices[s.Name]
	s.Zones, s.refused = p.offered(sku)
	return s
}

// offered returns the zones in which the size may be had, and why it cannot be
// had at all.
func (p *Provider) offered(sku *armcompute.ResourceSKU) (zones []string, refused string) {
	for _, info := range sku.LocationInfo {
		if strings.EqualFold(deref(info.Location), p.cfg.Region) {
			for _, zone := range info.Zones {
				zones = append(zones, deref(zone))
			}
		}
	}
	for _, r := range sku.Restrictions {
		reason := string(deref(r.ReasonCode))
		switch {
		case deref(r.Type) == armcompute.ResourceSKURestrictionsTypeLocation:
			refused = cmp.Or(reason, "restricted")
		case r.RestrictionInfo != nil:
			zones = slices.DeleteFunc(zones, func(zone string) bool {
				return slices.ContainsFunc(r.RestrictionInfo.Zones, func(z *string) bool { return deref(z) == zone })
			})
			if len(zones) == 0 && len(p.cfg.Zones) > 0 {
				refused = cmp.Or(reason, "restricted")
			}
		}
	}
	slices.Sort(zones)
	return zones, refused
}

func isTrue(text string) bool { return strings.EqualFold(text, "true") }

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // what is not a number is 0
	return n
}

// gpuModels are the models that names of sizes tell, such as
// Standard_NC24ads_A100_v4.
var gpuModels = map[string]string{
	"T4": "nvidia-t4", "A10": "nvidia-a10", "A100": "nvidia-a100", "H100": "nvidia-h100", "H200": "nvidia-h200", "GB200": "nvidia-gb200",
	"MI300X": "amd-mi300x", "V620": "amd-v620", "V710": "amd-v710", "RTXPRO6000BSE": "nvidia-rtxpro6000",
}

func gpuModel(size string) string {
	for word := range strings.SplitSeq(size, "_") {
		if model := gpuModels[strings.ToUpper(word)]; model != "" {
			return model
		}
	}
	return ""
}

// unfit returns why the configured VMs cannot have the size; empty if they can.
func (p *Provider) unfit(s vmSize) string {
	switch {
	case s.refused != "":
		return "the subscription may not have it here: " + s.refused
	case !p.cfg.DisableCVM && s.confidential == "":
		return "it makes no confidential VMs; choose another or set -disable-cvm (DISABLECVM)"
	case p.cfg.DisableCVM && s.confidential != "":
		return "it makes only confidential VMs, and -disable-cvm (DISABLECVM) is set"
	case p.cfg.DisableCVM && p.cfg.EnableSecureBoot && !s.trusted:
		return "it has no trusted launch, which -enable-secure-boot (ENABLE_SECURE_BOOT) needs"
	case p.cfg.Spot && !s.spot:
		return "there are no spot VMs of it, and -azure-spot (AZURE_SPOT) is set"
	}
	return ""
}

// usable returns the sizes that VMs as they are configured can have.
func (p *Provider) usable(ctx context.Context) ([]provider.InstanceType, error) {
	all, err := p.catalogue(ctx)
	if err != nil {
		return nil, err
	}
	var types []provider.InstanceType
	for _, s := range all {
		if p.unfit(s) == "" {
			t := s.InstanceType
			t.Zones = slices.Clone(t.Zones)
			types = append(types, t)
		}
	}
	return types, nil
}

// InstanceTypes implements provider.InstanceTypeLister.
func (p *Provider) InstanceTypes(ctx context.Context) ([]provider.InstanceType, error) {
	types, err := p.usable(ctx)
	return types, classify(err)
}

// rank returns the sizes that do for spec. The list of sizes is asked for only
// when spec needs it: Azure knows whether a size that is named exists.
func (p *Provider) rank(ctx context.Context, spec provider.InstanceTypeSpec) ([]provider.InstanceType, error) {
	o := instancetypes.Options{Default: p.cfg.Size, Allow: p.cfg.Sizes, Zones: p.cfg.Zones}
	plain := spec.Arch == "" && (spec.InstanceType != "" || spec.VCPUs == 0 && spec.Memory == 0 && spec.GPUs == 0 && spec.GPU == "")
	if plain {
		return o.Rank(spec)
	}
	var err error
	if o.Types, err = p.usable(ctx); err != nil {
		return nil, err
	}
	if len(o.Types) == 0 {
		return nil, fmt.Errorf("%w: region %s has no VM size for VMs as they are configured", provider.ErrInvalidArgument, p.cfg.Region)
	}
	return o.Rank(spec)
}
