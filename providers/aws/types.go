// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/instancetypes"
)

// InstanceTypes implements provider.InstanceTypeLister: the types that pods
// may have, with the prices that are configured.
func (p *Provider) InstanceTypes(ctx context.Context) ([]provider.InstanceType, error) {
	ctx, s, done, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	list, err := p.types(ctx, s, p.cfg.InstanceType)
	return slices.Clone(list), err
}

// types returns the catalogue with standard as the type of pods that ask for
// none.
func (p *Provider) types(ctx context.Context, s *session, standard string) ([]provider.InstanceType, error) {
	return p.catalogue.Get(ctx, standard, func() ([]provider.InstanceType, time.Time, error) {
		list, err := p.describeTypes(ctx, s, append([]string{standard}, p.cfg.InstanceTypes...))
		return list, time.Now().Add(p.timing.fresh), classify("list instance types", err)
	})
}

func (p *Provider) describeTypes(ctx context.Context, s *session, patterns []string) ([]provider.InstanceType, error) {
	var list []provider.InstanceType
	in := &ec2.DescribeInstanceTypesInput{Filters: p.typeFilters(patterns)}
	for more := true; more; more = sdk.ToString(in.NextToken) != "" {
		page, err := s.ec2().DescribeInstanceTypes(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, t := range page.InstanceTypes {
			if row := p.typeOf(t); row.Arch != "" && allowed(row.Name, patterns) {
				list = append(list, row)
			}
		}
		in.NextToken = page.NextToken
	}
	slices.SortFunc(list, func(a, b provider.InstanceType) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// typeFilters lets the cloud leave out what it can. It knows no classes of
// letters, which patterns may have.
func (p *Provider) typeFilters(patterns []string) []types.Filter {
	var filters []types.Filter
	if !slices.ContainsFunc(patterns, func(pattern string) bool { return strings.ContainsAny(pattern, `[\`) }) {
		filters = append(filters, filter("instance-type", patterns...))
	}
	if !p.cfg.DisableCVM {
		filters = append(filters, filter("processor-info.supported-features", string(types.SupportedAdditionalProcessorFeatureAmdSevSnp)))
	}
	return filters
}

func allowed(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // the configuration was checked
		return ok || name == pattern
	})
}

func (p *Provider) typeOf(t types.InstanceTypeInfo) provider.InstanceType {
	row := provider.InstanceType{Name: string(t.InstanceType), Price: p.cfg.Prices[string(t.InstanceType)]}
	if t.VCpuInfo != nil {
		row.VCPUs = int64(sdk.ToInt32(t.VCpuInfo.DefaultVCpus))
	}
	if t.MemoryInfo != nil {
		row.Memory = sdk.ToInt64(t.MemoryInfo.SizeInMiB)
	}
	if t.ProcessorInfo != nil {
		for _, arch := range t.ProcessorInfo.SupportedArchitectures { // old types have i386 as well
			if name := archNames[string(arch)]; row.Arch == "" || name == "amd64" {
				row.Arch = name
			}
		}
	}
	if t.GpuInfo != nil {
		for _, gpu := range t.GpuInfo.Gpus {
			row.GPUs += int64(sdk.ToInt32(gpu.Count))
			row.GPU = strings.ToLower(sdk.ToString(gpu.Manufacturer) + "-" + sdk.ToString(gpu.Name))
		}
	}
	return row
}

// choose returns the types for a spec, the best first. A pod that asks for
// nothing gets the standard without a look at the catalogue.
func (p *Provider) choose(ctx context.Context, s *session, standard, arch string, spec provider.InstanceTypeSpec) ([]string, error) {
	options := instancetypes.Options{Default: standard, Allow: p.cfg.InstanceTypes}
	spec.Arch = arch
	if spec.InstanceType != standard && (spec.InstanceType != "" || spec.VCPUs != 0 || spec.Memory != 0 || spec.GPUs != 0 || spec.GPU != "") {
		list, err := p.types(ctx, s, standard)
		if err != nil {
			return nil, err
		}
		options.Types = list
	}
	ranked, err := options.Rank(spec)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range ranked {
		names = append(names, t.Name)
	}
	return names, nil
}
