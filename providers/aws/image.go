// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"fmt"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
)

// image is the data of an AMI.
type image struct {
	id string
	// arch is a GOARCH name.
	arch string
	// root is the name of the root device, rootSize its size in GiB.
	root     string
	rootSize int64
	uefi     bool
}

// archNames are GOARCH's names of EC2's architectures.
var archNames = map[string]string{
	string(types.ArchitectureValuesX8664): "amd64", string(types.ArchitectureValuesArm64): "arm64", string(types.ArchitectureValuesI386): "386",
}

func (p *Provider) image(ctx context.Context, s *session, id string) (image, error) {
	if !imageSyntax.MatchString(id) {
		return image{}, fmt.Errorf("%w: %q is not an id of an AMI, such as ami-0123456789abcdef0", provider.ErrInvalidArgument, id)
	}
	return p.images.Get(ctx, id, func() (found image, until time.Time, err error) {
		out, err := s.ec2().DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{id}})
		switch {
		case err != nil:
			err = classify("look up AMI "+id, err)
		case len(out.Images) == 0:
			err = fmt.Errorf("%w: AMI %s: there is none in %s, or it is not shared with this account", provider.ErrNotFound, id, s.region)
		default:
			found, err = imageOf(out.Images[0])
		}
		return found, time.Now().Add(p.timing.fresh), err
	})
}

func imageOf(i types.Image) (image, error) {
	made := image{id: sdk.ToString(i.ImageId), arch: archNames[string(i.Architecture)], root: sdk.ToString(i.RootDeviceName)}
	made.uefi = i.BootMode == types.BootModeValuesUefi || i.BootMode == types.BootModeValuesUefiPreferred
	if i.State != types.ImageStateAvailable {
		return made, fmt.Errorf("%w: AMI %s is %s, not available", provider.ErrInvalidArgument, made.id, i.State)
	}
	for _, device := range i.BlockDeviceMappings {
		if sdk.ToString(device.DeviceName) == made.root && device.Ebs != nil {
			made.rootSize = int64(sdk.ToInt32(device.Ebs.VolumeSize))
		}
	}
	if made.root == "" || made.rootSize == 0 {
		return made, fmt.Errorf("%w: AMI %s has no root volume: it must be one with an EBS snapshot", provider.ErrInvalidArgument, made.id)
	}
	return made, nil
}

// template has the fields of a launch template that matter here.
type template struct {
	image, instanceType, keyName string
	subnet                       string
	groups                       []string
	disks                        []types.BlockDeviceMapping
}

func (p *Provider) template(ctx context.Context, s *session) (template, error) {
	if !p.cfg.UseTemplate {
		return template{}, nil
	}
	return p.templates.Get(ctx, "", func() (found template, until time.Time, err error) {
		out, err := s.ec2().DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{
			LaunchTemplateName: &p.cfg.TemplateName, Versions: []string{p.cfg.TemplateVer},
		})
		what := fmt.Sprintf("launch template %s, version %s (-aws-lt-name, PODVM_LAUNCHTEMPLATE_NAME)", p.cfg.TemplateName, p.cfg.TemplateVer)
		switch {
		case err != nil:
			err = classify(what, err)
		case len(out.LaunchTemplateVersions) == 0 || out.LaunchTemplateVersions[0].LaunchTemplateData == nil:
			err = fmt.Errorf("%w: %s: there is none", provider.ErrNotFound, what)
		default:
			found = templateOf(out.LaunchTemplateVersions[0].LaunchTemplateData)
		}
		return found, time.Now().Add(p.timing.fresh), err
	})
}

func templateOf(data *types.ResponseLaunchTemplateData) template {
	t := template{
		image: sdk.ToString(data.ImageId), instanceType: string(data.InstanceType), keyName: sdk.ToString(data.KeyName), groups: data.SecurityGroupIds,
	}
	for _, nic := range data.NetworkInterfaces {
		if sdk.ToInt32(nic.DeviceIndex) == 0 {
			t.subnet = sdk.ToString(nic.SubnetId)
			if len(nic.Groups) > 0 {
				t.groups = nic.Groups
			}
		}
	}
	for _, device := range data.BlockDeviceMappings {
		if device.Ebs == nil {
			continue
		}
		t.disks = append(t.disks, types.BlockDeviceMapping{DeviceName: device.DeviceName, Ebs: &types.EbsBlockDevice{
			Encrypted: device.Ebs.Encrypted, Iops: device.Ebs.Iops, KmsKeyId: device.Ebs.KmsKeyId, SnapshotId: device.Ebs.SnapshotId,
			Throughput: device.Ebs.Throughput, VolumeSize: device.Ebs.VolumeSize, VolumeType: device.Ebs.VolumeType,
		}})
	}
	return t
}
