// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"

	"github.com/outrigger/outrigger/provider"
)

// verifyLimit bounds ConfigVerifier.
const verifyLimit = time.Minute

// ConfigVerifier implements provider.Provider. It reports everything that is
// wrong, unless the cloud does not let us ask.
func (p *Provider) ConfigVerifier() error { return p.VerifyConfig(context.Background()) }

// VerifyConfig implements provider.ContextVerifier.
func (p *Provider) VerifyConfig(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	ctx, s, done, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	v := &verifier{p: p, s: s}
	t, err := p.template(ctx, s)
	if err != nil && hopeless(err) {
		return err
	}
	v.add(err)
	if err == nil || p.cfg.Image != "" {
		v.image(ctx, t)
	}
	if len(v.errs) > 0 && hopeless(v.errs[len(v.errs)-1]) {
		return v.errs[len(v.errs)-1]
	}
	v.network(ctx, t)
	v.key(ctx)
	v.types(ctx, t)
	v.quota(ctx)
	v.permissions(ctx, t)
	v.vcpus(ctx)
	return errors.Join(v.errs...)
}

// hopeless reports whether every call fails like this one.
func hopeless(err error) bool {
	class := provider.Class(err)
	return class == provider.ErrUnauthenticated || class == provider.ErrUnavailable
}

// verifier collects what is wrong.
type verifier struct {
	p    *Provider
	s    *session
	errs []error
	// ami is the image, if it is right, and standard the type of a pod that
	// asks for none.
	ami      image
	standard provider.InstanceType
}

func (v *verifier) add(err error) {
	if err != nil {
		v.errs = append(v.errs, err)
	}
}

// settingError names a setting with the error of the call that looked at it.
func settingError(name string, err error) error {
	if err == nil {
		return nil
	}
	if class := provider.Class(classify("", err)); class != provider.ErrNotFound && class != provider.ErrInvalidArgument {
		return classify("verify", err)
	}
	return fmt.Errorf("%w: %w", bad(name, "the cloud refuses it"), err)
}

func (v *verifier) image(ctx context.Context, t template) {
	id := cmp.Or(v.p.cfg.Image, t.image)
	if id == "" {
		if v.p.cfg.UseTemplate {
			v.add(bad("imageid", "it is not set, and launch template %s has no image", v.p.cfg.TemplateName))
		}
		return
	}
	ami, err := v.p.image(ctx, v.s, id)
	if err != nil {
		v.add(settingError("imageid", err))
		return
	}
	v.ami = ami
	if !v.p.cfg.DisableCVM && !ami.uefi {
		v.add(bad("imageid", "AMI %s does not boot by UEFI (boot mode uefi or uefi-preferred), which confidential VMs need; or set -disable-cvm (DISABLECVM)", id))
	}
	if size := v.p.cfg.RootVolumeSize; size > 0 && size < ami.rootSize {
		v.add(bad("root-volume-size", "%d GiB: AMI %s has %d, which is used", size, id, ami.rootSize))
	}
}

// network checks subnets and groups, which must be in one VPC.
func (v *verifier) network(ctx context.Context, t template) {
	subnets := v.s.placement.subnets
	if len(subnets) == 0 && t.subnet != "" {
		subnets = []string{t.subnet}
	}
	networks := map[string]bool{}
	for _, id := range subnets {
		out, err := v.s.ec2().DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{id}})
		if err != nil {
			v.add(settingError("subnetid", err))
			continue
		}
		for _, subnet := range out.Subnets {
			networks[sdk.ToString(subnet.VpcId)] = true
			if sdk.ToInt32(subnet.AvailableIpAddressCount) == 0 {
				v.add(fmt.Errorf("%w: -subnetid (AWS_SUBNET_ID): subnet %s has no free address", provider.ErrCapacity, id))
			}
		}
	}
	for _, id := range v.s.placement.groups {
		out, err := v.s.ec2().DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{id}})
		if err != nil {
			v.add(settingError("securitygroupids", err))
			continue
		}
		for _, group := range out.SecurityGroups {
			if len(networks) > 0 && !networks[sdk.ToString(group.VpcId)] {
				v.add(bad("securitygroupids", "group %s is of VPC %s, which is not that of the subnet", id, sdk.ToString(group.VpcId)))
			}
		}
	}
	if len(networks) > 1 {
		v.add(bad("subnetid", "the subnets are of %d VPCs: security groups hold in one", len(networks)))
	}
}

func (v *verifier) key(ctx context.Context) {
	if v.s.placement.keyName == "" {
		return
	}
	_, err := v.s.ec2().DescribeKeyPairs(ctx, &ec2.DescribeKeyPairsInput{KeyNames: []string{v.s.placement.keyName}})
	v.add(settingError("keyname", err))
}

// types looks whether the standard type is there, of the image's architecture
// and, where that is wanted, confidential.
func (v *verifier) types(ctx context.Context, t template) {
	standard := v.p.standardType(t)
	list, err := v.p.types(ctx, v.s, standard)
	if err != nil {
		v.add(settingError("instance-type", err))
		return
	}
	i := slices.IndexFunc(list, func(row provider.InstanceType) bool { return row.Name == standard })
	switch {
	case i < 0 && !v.p.cfg.DisableCVM:
		v.add(bad("instance-type", "%s is not to be had in %s, or cannot be confidential (AMD SEV-SNP); choose one of m6a, c6a, r6a or set -disable-cvm (DISABLECVM)", standard, v.s.region))
	case i < 0:
		v.add(bad("instance-type", "%s is not to be had in %s", standard, v.s.region))
	case v.ami.arch != "" && list[i].Arch != v.ami.arch:
		v.add(bad("instance-type", "%s is of architecture %s, AMI %s of %s", standard, list[i].Arch, v.ami.id, v.ami.arch))
	}
	if i >= 0 {
		v.standard = list[i]
	}
	for _, pattern := range v.p.cfg.InstanceTypes {
		if !slices.ContainsFunc(list, func(row provider.InstanceType) bool { return allowed(row.Name, []string{pattern}) }) {
			v.add(bad("instance-types", "no type that can be used is %s", pattern))
		}
	}
}

// quota compares what EC2's own API reports quotas: that of elastic addresses.
// For the one of virtual CPUs see vcpus.
func (v *verifier) quota(ctx context.Context) {
	if !v.p.cfg.ElasticIP {
		return
	}
	limit, err := v.s.addressLimit(ctx)
	if err != nil {
		v.add(classify("verify the quota of addresses", err))
		return
	}
	used, err := v.s.addresses(ctx, nil)
	if err != nil {
		v.add(classify("verify the quota of addresses", err))
		return
	}
	if limit > 0 && len(used) >= limit {
		v.add(fmt.Errorf("%w: -aws-elastic-ip (AWS_ELASTIC_IP): %d of %d elastic addresses are taken", provider.ErrQuota, len(used), limit))
	}
}

// addressLimit returns how many elastic addresses the account may have; 0 if
// the cloud does not tell.
func (s *session) addressLimit(ctx context.Context) (int, error) {
	out, err := s.ec2().DescribeAccountAttributes(ctx, &ec2.DescribeAccountAttributesInput{})
	if err != nil {
		return 0, err
	}
	for _, attribute := range out.AccountAttributes {
		if sdk.ToString(attribute.AttributeName) != "vpc-max-elastic-ips" || len(attribute.AttributeValues) == 0 {
			continue
		}
		return strconv.Atoi(sdk.ToString(attribute.AttributeValues[0].AttributeValue))
	}
	return 0, nil
}

// permissions makes dry runs of the calls that change something. A deletion can
// only be tried on an instance of ours, since credentials may be bound to such.
func (v *verifier) permissions(ctx context.Context, t template) {
	dry, s := sdk.Bool(true), v.s
	out, err := s.ec2().DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{filter("tag:"+provider.TagKey, "*")}, MaxResults: sdk.Int32(5)})
	v.dryRun("ec2:DescribeInstances", err)
	_, err = s.ec2().DescribeAddresses(ctx, &ec2.DescribeAddressesInput{DryRun: dry})
	v.dryRun("ec2:DescribeAddresses", err)
	if out != nil && len(out.Reservations) > 0 && len(out.Reservations[0].Instances) > 0 {
		_, err = s.ec2().TerminateInstances(ctx, &ec2.TerminateInstancesInput{DryRun: dry, InstanceIds: []string{id(&out.Reservations[0].Instances[0])}})
		v.dryRun("ec2:TerminateInstances", err)
	}
	if v.p.cfg.ElasticIP {
		_, err = s.ec2().AllocateAddress(ctx, &ec2.AllocateAddressInput{DryRun: dry, Domain: types.DomainTypeVpc})
		v.dryRun("ec2:AllocateAddress", err)
	}
	if v.ami.id != "" && len(v.errs) == 0 {
		v.run(ctx, t)
	}
}

// run makes a dry run of a creation, if everything that it needs is right.
func (v *verifier) run(ctx context.Context, t template) {
	pl := &plan{key: "verify", name: "podvm-verify", template: t, image: v.ami, types: []string{v.p.standardType(t)}}
	v.p.connect(pl, v.s, false)
	if err := pl.label(v.p.cfg.Tags, nil); err != nil {
		v.add(err)
		return
	}
	in := v.p.request(pl, pl.types[0], pl.subnets[0], token(nil, "verify", 0))
	in.DryRun, in.ClientToken = sdk.Bool(true), nil
	_, err := v.s.ec2().RunInstances(ctx, in)
	v.dryRun("ec2:RunInstances and ec2:CreateTags", err)
}

// dryRun takes the answer of a call that a permission is needed for. An
// instance may have gone meanwhile.
func (v *verifier) dryRun(action string, err error) {
	if !isCode(err, "DryRunOperation", notFoundInstance) {
		v.add(classify("verify the permission for "+action, err))
	}
}

// vcpuQuotas are EC2's quotas of virtual CPUs (EC2 user guide, "Amazon EC2
// instance type quotas"), of families by the letters that begin their names.
var vcpuQuotas = []struct {
	families       []string
	onDemand, spot string
}{
	{[]string{"a", "c", "d", "h", "i", "m", "r", "t", "z"}, "L-1216C47A", "L-34B43A08"},
	{[]string{"g", "vt"}, "L-DB2E81BA", "L-3819A6DF"},
}

// vcpuQuota returns the code of the quota that a type counts in; none is known
// here of other families.
func vcpuQuota(instanceType string, spot bool) string {
	family := instanceType[:max(0, strings.IndexAny(instanceType, "0123456789-."))]
	for _, row := range vcpuQuotas {
		if slices.Contains(row.families, family) && spot {
			return row.spot
		} else if slices.Contains(row.families, family) {
			return row.onDemand
		}
	}
	return ""
}

// vcpus compares the quota of virtual CPUs with what runs: room for one more VM
// of the standard type is the least.
func (v *verifier) vcpus(ctx context.Context) {
	standard, needed := v.standard.Name, v.standard.VCPUs
	code := vcpuQuota(standard, v.p.cfg.Spot)
	if code == "" {
		return
	}
	asking, cancel := context.WithTimeout(ctx, v.p.timing.quota)
	defer cancel()
	out, err := v.s.quota(asking, &servicequotas.GetServiceQuotaInput{ServiceCode: sdk.String("ec2"), QuotaCode: &code})
	err = classify("verify the quota of virtual CPUs", err)
	switch {
	case errors.Is(err, provider.ErrUnavailable), errors.Is(err, provider.ErrNotFound):
		slog.Warn("The quota of virtual CPUs cannot be looked at", "provider", Name, "error", err)
		return
	case err != nil:
		v.add(err)
		return
	case out.Quota == nil || out.Quota.Value == nil:
		return
	}
	used, err := v.s.vcpusUsed(ctx, code, v.p.cfg.Spot)
	if err != nil {
		v.add(classify("verify the quota of virtual CPUs", err))
		return
	}
	if limit := int64(*out.Quota.Value); used+needed > limit {
		v.add(fmt.Errorf("%w: -instance-type (PODVM_INSTANCE_TYPE): %s has %d virtual CPUs, and %d of the account's %d in %s are taken: ask for more at Service Quotas, ec2, %s",
			provider.ErrQuota, standard, needed, used, limit, v.s.region, code))
	}
}

// vcpusUsed returns what counts in a quota: instances that run or begin to, of
// the quota's families and kind.
func (s *session) vcpusUsed(ctx context.Context, code string, spot bool) (int64, error) {
	list, err := s.describe(ctx, []types.Filter{filter("instance-state-name", "pending", "running")})
	if err != nil {
		return 0, err
	}
	used := int64(0)
	for _, i := range list {
		isSpot := i.InstanceLifecycle == types.InstanceLifecycleTypeSpot
		if i.CpuOptions == nil || isSpot != spot || vcpuQuota(string(i.InstanceType), isSpot) != code {
			continue
		}
		used += int64(sdk.ToInt32(i.CpuOptions.CoreCount)) * int64(sdk.ToInt32(i.CpuOptions.ThreadsPerCore))
	}
	return used, nil
}
