// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// Tags of ours besides the owner's.
const (
	tagName = "Name"
	// tagReach says which address of an instance is used, if not its private one.
	tagReach = "outrigger-reach"
	// tagInstance on an elastic address is the instance for which it was made, tagNIC
	// the index of the interface.
	tagInstance = "outrigger-instance"
	tagNIC      = "outrigger-nic"
)

// reach says at which address an instance is reached.
type reach string

const (
	reachPrivate reach = ""
	reachPublic  reach = "public"  // assigned by the cloud while the instance runs
	reachElastic reach = "elastic" // an elastic address that we make for the instance
)

// plan is everything about an instance, decided before anything of it exists.
type plan struct {
	key, name, userData string
	// owned are the tags of everything that belongs to the instance. tags are those of
	// the resources that RunInstances makes.
	owned, tags map[string]string
	image       image
	template    template
	types       []string
	subnets     []string // "" means the subnet of the launch template
	groups      []string
	keyName     string
	reach       reach
	nics        int
}

// maxUserData is EC2's limit before it is encoded (EC2 user guide, "Run
// commands when you launch an instance with user data input").
const maxUserData = 16 << 10

func (p *Provider) plan(ctx context.Context, s *session, podName, key, userData string, spec provider.InstanceTypeSpec) (*plan, error) {
	if len(userData) > maxUserData {
		return nil, fmt.Errorf("%w: %d bytes of user-data: EC2 takes %d", provider.ErrInvalidArgument, len(userData), maxUserData)
	}
	if len(spec.Volumes) > 0 {
		return nil, fmt.Errorf("%w: volumes: this provider has none", provider.ErrInvalidArgument)
	}
	pl := &plan{key: key, name: provider.InstanceName(podName, key), userData: userData, nics: 1}
	var err error
	if pl.template, err = p.template(ctx, s); err != nil {
		return nil, err
	}
	if pl.image, err = p.image(ctx, s, cmp.Or(spec.Image, p.cfg.Image, pl.template.image)); err != nil {
		return nil, err
	}
	if spec.Arch != "" && spec.Arch != pl.image.arch {
		return nil, fmt.Errorf("%w: architecture %s: AMI %s has %s", provider.ErrInvalidArgument, spec.Arch, pl.image.id, pl.image.arch)
	}
	if pl.types, err = p.choose(ctx, s, p.standardType(pl.template), pl.image.arch, spec); err != nil {
		return nil, err
	}
	p.connect(pl, s, spec.MultiNic)
	if spec.Zone != "" {
		if pl.subnets, err = s.subnetsIn(ctx, pl.subnets, spec.Zone); err != nil {
			return nil, err
		}
	}
	return pl, pl.label(p.cfg.Tags, spec.Tags)
}

// subnetsIn returns those of the subnets that are in the zone: it is by its subnet that an
// instance has a zone.
func (s *session) subnetsIn(ctx context.Context, ids []string, zone string) ([]string, error) {
	if slices.Contains(ids, "") {
		return nil, fmt.Errorf("%w: zone %q: neither -subnetid (AWS_SUBNET_ID) nor the launch template names a subnet", provider.ErrInvalidArgument, zone)
	}
	out, err := s.ec2().DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: ids})
	if err != nil {
		return nil, settingError("subnetid", err)
	}
	zones := map[string]string{}
	for _, subnet := range out.Subnets {
		zones[sdk.ToString(subnet.SubnetId)] = sdk.ToString(subnet.AvailabilityZone)
	}
	in := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return zones[id] != zone })
	if len(in) == 0 {
		there := slices.Compact(slices.Sorted(maps.Values(zones)))
		return nil, fmt.Errorf("%w: zone %q: the subnets of -subnetid (AWS_SUBNET_ID) are in %s", provider.ErrInvalidArgument, zone, strings.Join(there, ", "))
	}
	return in, nil
}

// standardType returns the default type: the launch template's, unless another one is
// configured.
func (p *Provider) standardType(t template) string {
	if t.instanceType != "" && p.cfg.InstanceType == config.Defaults[Config]().InstanceType {
		return t.instanceType
	}
	return p.cfg.InstanceType
}

// connect sets the network of the plan. EC2 assigns no public address to instances with
// two interfaces, so they get elastic addresses.
func (p *Provider) connect(pl *plan, s *session, second bool) {
	pl.keyName = cmp.Or(s.placement.keyName, pl.template.keyName)
	pl.subnets, pl.groups = s.placement.subnets, s.placement.groups
	if len(pl.subnets) == 0 {
		pl.subnets = []string{pl.template.subnet}
	}
	if len(pl.groups) == 0 {
		pl.groups = pl.template.groups
	}
	if second {
		pl.nics = 2
	}
	switch {
	case p.cfg.UsePublicIP && (second || p.cfg.ElasticIP):
		pl.reach = reachElastic
	case p.cfg.UsePublicIP:
		pl.reach = reachPublic
	}
}

// label sets the tags. The owner's tags win over the configured ones.
func (pl *plan) label(configured, owner map[string]string) error {
	pl.owned = tags.Merge(configured, owner, map[string]string{provider.TagKey: pl.key, tagName: pl.name})
	pl.tags = tags.Merge(pl.owned)
	if pl.reach != reachPrivate {
		pl.tags[tagReach] = string(pl.reach)
	}
	for key, value := range pl.tags {
		if err := checkTag(key, value); err != nil {
			return fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
		}
	}
	if len(pl.tags)+2 > maxTags { // an address has two more
		return fmt.Errorf("%w: %d tags: EC2 takes %d; -tags (TAGS) has %d of them", provider.ErrInvalidArgument, len(pl.tags)+2, maxTags, len(configured))
	}
	return nil
}

// tagList returns the tags for the API, always in the same order: requests with the same
// client token must be equal.
func tagList(all map[string]string) []types.Tag {
	return tags.List(all, func(key, value string) types.Tag { return types.Tag{Key: &key, Value: &value} })
}

// request returns the call that makes everything but elastic addresses.
func (p *Provider) request(pl *plan, instanceType, subnet, token string) *ec2.RunInstancesInput {
	in := &ec2.RunInstancesInput{
		MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1), ClientToken: &token,
		ImageId: &pl.image.id, InstanceType: types.InstanceType(instanceType),
		NetworkInterfaces: pl.interfaces(subnet), BlockDeviceMappings: p.disks(pl),
		MetadataOptions: &types.InstanceMetadataOptionsRequest{
			HttpEndpoint: types.InstanceMetadataEndpointStateEnabled, HttpTokens: types.HttpTokensStateRequired,
			HttpPutResponseHopLimit: sdk.Int32(int32(p.cfg.HopLimit)),
		},
		InstanceInitiatedShutdownBehavior: types.ShutdownBehaviorTerminate,
	}
	if pl.userData != "" {
		in.UserData = sdk.String(base64.StdEncoding.EncodeToString([]byte(pl.userData)))
	}
	if pl.keyName != "" {
		in.KeyName = &pl.keyName
	}
	if !p.cfg.DisableCVM {
		in.CpuOptions = &types.CpuOptionsRequest{AmdSevSnp: types.AmdSevSnpSpecificationEnabled}
	}
	if p.cfg.UseTemplate {
		in.LaunchTemplate = &types.LaunchTemplateSpecification{LaunchTemplateName: &p.cfg.TemplateName, Version: &p.cfg.TemplateVer}
	}
	kinds := []types.ResourceType{types.ResourceTypeInstance, types.ResourceTypeVolume, types.ResourceTypeNetworkInterface}
	if p.cfg.Spot {
		kinds = append(kinds, types.ResourceTypeSpotInstancesRequest)
		in.InstanceMarketOptions = p.spot()
		in.InstanceInitiatedShutdownBehavior = "" // a spot request has a rule of its own
	}
	for _, kind := range kinds {
		in.TagSpecifications = append(in.TagSpecifications, types.TagSpecification{ResourceType: kind, Tags: tagList(pl.tags)})
	}
	return in
}

func (p *Provider) spot() *types.InstanceMarketOptionsRequest {
	options := &types.SpotMarketOptions{
		SpotInstanceType: types.SpotInstanceTypeOneTime, InstanceInterruptionBehavior: types.InstanceInterruptionBehaviorTerminate,
	}
	if p.cfg.SpotMaxPrice != "" {
		options.MaxPrice = &p.cfg.SpotMaxPrice
	}
	return &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot, SpotOptions: options}
}

func (pl *plan) interfaces(subnet string) []types.InstanceNetworkInterfaceSpecification {
	var list []types.InstanceNetworkInterfaceSpecification
	for i := range pl.nics {
		nic := types.InstanceNetworkInterfaceSpecification{
			DeviceIndex: sdk.Int32(int32(i)), DeleteOnTermination: sdk.Bool(true), Groups: pl.groups,
		}
		if subnet != "" {
			nic.SubnetId = &subnet
		}
		if pl.nics == 1 { // also false: a subnet may give addresses by itself
			nic.AssociatePublicIpAddress = sdk.Bool(pl.reach == reachPublic)
		}
		list = append(list, nic)
	}
	return list
}

// disks returns the root volume and the disks of the launch template. All are deleted
// with the instance.
func (p *Provider) disks(pl *plan) []types.BlockDeviceMapping {
	root := types.BlockDeviceMapping{DeviceName: &pl.image.root, Ebs: &types.EbsBlockDevice{}}
	list := []types.BlockDeviceMapping{}
	for _, disk := range pl.template.disks {
		ebs := *disk.Ebs
		disk.Ebs = &ebs
		if sdk.ToString(disk.DeviceName) == pl.image.root {
			root = disk
			continue
		}
		list = append(list, disk)
	}
	if p.cfg.RootVolumeSize > 0 {
		root.Ebs.VolumeSize = sdk.Int32(int32(max(p.cfg.RootVolumeSize, pl.image.rootSize)))
	}
	if p.cfg.RootVolumeType != "" {
		root.Ebs.VolumeType = types.VolumeType(p.cfg.RootVolumeType)
	}
	list = append([]types.BlockDeviceMapping{root}, list...)
	for i := range list {
		list[i].Ebs.DeleteOnTermination = sdk.Bool(true)
		if p.cfg.DiskKey != "" {
			list[i].Ebs.Encrypted, list[i].Ebs.KmsKeyId = sdk.Bool(true), &p.cfg.DiskKey
		}
	}
	return list
}
