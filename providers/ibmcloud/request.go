// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/provider/kit/tags"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// maxUserData is the longest user-data (page "User data"); it travels as it is.
const maxUserData = 64<<10 - 1

// request is one call of CreateInstance.
type request struct {
	cluster, key, name string
	spec               provider.InstanceTypeSpec
	tags               map[string]string
	userTags           []string
	userData           string
}

func newRequest(podName, key string, spec provider.InstanceTypeSpec) *request {
	cluster := spec.Tags[provider.TagCluster]
	return &request{
		cluster: cluster, key: key, name: names.Hashed(podName, cluster, key), spec: spec,
		tags: tags.Merge(spec.Tags, map[string]string{provider.TagKey: key}),
	}
}

// refuse names what this provider has not got.
func (r *request) refuse() error {
	switch {
	case r.spec.MultiNic:
		return fmt.Errorf("%w: a second interface to the outside: this provider gives none", provider.ErrInvalidArgument)
	case len(r.spec.Volumes) > 0:
		return fmt.Errorf("%w: volumes: this provider attaches none", provider.ErrInvalidArgument)
	case r.spec.Image != "" && !identifier.MatchString(r.spec.Image):
		return fmt.Errorf("%w: image %q is not an id", provider.ErrInvalidArgument, r.spec.Image)
	}
	return nil
}

// read generates the user-data and checks it.
func (r *request) read(cloudConfig cloudinit.CloudConfigGenerator) error {
	text, err := userdata.Generate(cloudConfig)
	switch {
	case err != nil:
		return err
	case len(text) > maxUserData:
		return fmt.Errorf("%w: the user-data has %d bytes, and IBM Cloud takes %d", provider.ErrInvalidArgument, len(text), maxUserData)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: the user-data is not UTF-8 text, and IBM Cloud takes no other", provider.ErrInvalidArgument)
	}
	r.userData = text
	return nil
}

// prototype returns the request that makes everything that belongs to the instance.
// All of it is deleted with the instance.
func (p *Provider) prototype(r *request, c candidate) *vpcv1.InstancePrototypeInstanceByImage {
	volume := &vpcv1.VolumePrototypeInstanceByImageContext{
		Profile:  &vpcv1.VolumeProfileIdentityByName{Name: new("general-purpose")},
		UserTags: r.userTags,
	}
	if p.cfg.RootDisk > 0 {
		volume.Capacity = &p.cfg.RootDisk
	}
	if p.cfg.DiskKey != "" {
		volume.EncryptionKey = &vpcv1.EncryptionKeyIdentityByCRN{CRN: &p.cfg.DiskKey}
	}
	proto := &vpcv1.InstancePrototypeInstanceByImage{
		Name: &r.name, Image: &vpcv1.ImageIdentityByID{ID: &c.image}, Zone: &vpcv1.ZoneIdentityByName{Name: &c.Zone},
		Profile: &vpcv1.InstanceProfileIdentityByName{Name: &c.Type.Name}, VPC: &vpcv1.VPCIdentityByID{ID: &c.home.vpc},
		BootVolumeAttachment: &vpcv1.VolumeAttachmentPrototypeInstanceByImageContext{DeleteVolumeOnInstanceDelete: new(true), Volume: volume},
		// Off by default; the guest reads its user-data there.
		MetadataService: &vpcv1.InstanceMetadataServicePrototype{
			Enabled: new(true), Protocol: new("http"), ResponseHopLimit: new(int64(1)),
		},
		PrimaryNetworkInterface: nic(p.cfg.Subnets[c.at], c.groups),
	}
	if r.userData != "" {
		proto.UserData = &r.userData
	}
	if p.cfg.SSHKey != "" {
		proto.Keys = []vpcv1.KeyIdentityIntf{&vpcv1.KeyIdentityByID{ID: &p.cfg.SSHKey}}
	}
	if c.home.resourceGroup != "" {
		proto.ResourceGroup = &vpcv1.ResourceGroupIdentityByID{ID: &c.home.resourceGroup}
	}
	p.confide(proto, c)
	p.lodge(proto, c)
	return proto
}

// confide makes the VM confidential.
func (p *Provider) confide(proto *vpcv1.InstancePrototypeInstanceByImage, c candidate) {
	if p.cfg.DisableCVM || c.Type.Arch != "amd64" {
		return
	}
	proto.ConfidentialComputeMode = new(vpcv1.InstancePrototypeInstanceByImageConfidentialComputeModeTdxConst)
	proto.EnableSecureBoot = new(true)
}

// lodge sets the dedicated host of the VM and its second interface.
func (p *Provider) lodge(proto *vpcv1.InstancePrototypeInstanceByImage, c candidate) {
	if len(p.cfg.DedicatedHosts) > 0 {
		proto.PlacementTarget = &vpcv1.InstancePlacementTargetPrototypeDedicatedHostIdentityDedicatedHostIdentityByID{ID: &p.cfg.DedicatedHosts[c.at]}
	}
	if len(p.cfg.DedicatedHostGroup) > 0 {
		proto.PlacementTarget = &vpcv1.InstancePlacementTargetPrototypeDedicatedHostGroupIdentityDedicatedHostGroupIdentityByID{ID: &p.cfg.DedicatedHostGroup[c.at]}
	}
	if len(p.cfg.SecondarySubnets) > 0 {
		var groups []string
		if p.cfg.SecondaryGroup != "" {
			groups = []string{p.cfg.SecondaryGroup}
		}
		proto.NetworkInterfaces = []vpcv1.NetworkInterfacePrototype{*nic(p.cfg.SecondarySubnets[c.at], groups)}
	}
}

func nic(subnet string, groups []string) *vpcv1.NetworkInterfacePrototype {
	n := &vpcv1.NetworkInterfacePrototype{Subnet: &vpcv1.SubnetIdentityByID{ID: &subnet}}
	for _, group := range groups {
		n.SecurityGroups = append(n.SecurityGroups, &vpcv1.SecurityGroupIdentityByID{ID: &group})
	}
	return n
}

// ownerTags returns the user tags of the boot volume: those of the operator, and those
// of the owner, which win.
func (p *Provider) ownerTags(r *request) ([]string, error) {
	all := tags.Merge(p.cfg.Tags, r.tags)
	if p.cfg.ClusterID != "" && all["coco-pod-vm"] == "" {
		all["coco-pod-vm"] = p.cfg.ClusterID
	}
	return userTags(all)
}

// An instance whose id nobody has heard, and a boot volume that has lost its
// instance, go by ids of ours.
const (
	byName   = "name:"
	byVolume = "volume:"
)

// User tags are key:value, of at most 128 characters, which are letters, digits,
// blanks, and _ - . : (page "Working with tags").
const maxTag = 128

var (
	tagKey   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	tagValue = regexp.MustCompile(`^[A-Za-z0-9_.: -]*$`)
	tagPart  = regexp.MustCompile(`^(.+) (\d\d)$`)
)

// userTags writes tags as user tags, in order. A value that is too long for one
// goes on in others, whose keys have a number after a blank.
func userTags(tags map[string]string) ([]string, error) {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		value := tags[key]
		if !tagKey.MatchString(key) || !tagValue.MatchString(value) {
			return nil, fmt.Errorf("%w: tag %.64q: %.64q: IBM Cloud takes letters, digits, '_', '-', '.' and, in values, ':'", provider.ErrInvalidArgument, key, value)
		}
		if len(key)+1+len(value) <= maxTag {
			list = append(list, key+":"+value)
			continue
		}
		room := maxTag - len(key) - len(" 00:")
		for n := 0; len(value) > 0; n++ {
			part := value[:min(room, len(value))]
			value = value[len(part):]
			list = append(list, fmt.Sprintf("%s %02d:%s", key, n, part))
		}
	}
	return list, nil
}

// tagsOf reads user tags; nil when they are none of ours.
func tagsOf(list []string) map[string]string {
	tags := map[string]string{}
	parts := map[string]map[int]string{}
	for _, tag := range list {
		key, value, _ := strings.Cut(tag, ":")
		part := tagPart.FindStringSubmatch(key)
		if part == nil {
			tags[key] = value
			continue
		}
		if parts[part[1]] == nil {
			parts[part[1]] = map[int]string{}
		}
		n, _ := strconv.Atoi(part[2])
		parts[part[1]][n] = value
	}
	for key, values := range parts {
		for n := range len(values) {
			tags[key] += values[n]
		}
	}
	if tags[provider.TagKey] == "" {
		return nil
	}
	return tags
}
