// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/provider/kit/places"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// request is one call of CreateInstance.
type request struct {
	cluster, key, name string
	spec               provider.InstanceTypeSpec
	tags               map[string]string
	userData           string
}

func newRequest(podName, key string, spec provider.InstanceTypeSpec) *request {
	cluster := spec.Tags[provider.TagCluster]
	return &request{
		cluster: cluster, key: key, name: names.Hashed(podName, cluster, key), spec: spec,
		tags: tags.Merge(spec.Tags, map[string]string{provider.TagKey: key}),
	}
}

// owns reports whether an instance is the one that is asked for.
func (r *request) owns(i *instance) bool {
	tags := tagsOf(i.Description)
	return tags[provider.TagKey] == r.key && tags[provider.TagCluster] == r.cluster
}

// namespace is that of the ids of our requests.
var namespace = uuid.MustParse("6f0e6ee0-4a2f-5c53-9a2b-7d3d1f1b0c11")

// requestID returns the id of the request that makes the instance with this type in
// this zone. It is the same in every process. Each type has its own, since each is a
// new attempt.
func (r *request) requestID(c places.Place) uuid.UUID {
	return uuid.NewSHA1(namespace, []byte(r.cluster+"/"+r.key+" "+c.Zone+" "+c.Type.Name))
}

// maxMetadata is the longest value in an instance's metadata (discovery
// document, Metadata.items.value).
const maxMetadata = 256 << 10

// userDataItems returns user-data in the form that the guest's agents expect. Text
// that JSON or the metadata server could change is encoded as base64 and marked so.
func userDataItems(text string) ([]metadataItem, error) {
	if text == "" {
		return nil, nil
	}
	items := []metadataItem{{Key: "user-data", Value: text}}
	if !isText(text) {
		items = []metadataItem{
			{Key: "user-data", Value: base64.StdEncoding.EncodeToString([]byte(text))},
			{Key: "user-data-encoding", Value: "base64"},
		}
	}
	if n := len(items[0].Value); n > maxMetadata {
		return nil, fmt.Errorf("%w: the user-data has %d bytes, and Compute Engine takes %d", provider.ErrInvalidArgument, n, maxMetadata)
	}
	return items, nil
}

func isText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t'
	})
}

// body returns the body of instances.insert: one request makes everything that belongs
// to the instance, and all of it is deleted with the instance.
func (p *Provider) body(r *request, c places.Place) (*instance, error) {
	description, err := describe(r.tags)
	if err != nil {
		return nil, err
	}
	items, err := userDataItems(r.userData)
	if err != nil {
		return nil, err
	}
	labels := tags.Merge(labelsOf(r.tags), p.cfg.Labels)
	if len(labels) > maxLabels {
		return nil, fmt.Errorf("%w: %d labels: Compute Engine takes %d", provider.ErrInvalidArgument, len(labels), maxLabels)
	}
	root, err := p.rootDisk(r, c.Zone, description, labels)
	if err != nil {
		return nil, err
	}
	interfaces, err := p.interfaces(r, c.Zone)
	if err != nil {
		return nil, err
	}
	i := &instance{
		Name: r.name, Description: description, Labels: labels,
		MachineType: "zones/" + c.Zone + "/machineTypes/" + c.Type.Name,
		Disks:       []attachedDisk{root}, Interfaces: interfaces,
		Scheduling: p.scheduling(c),
	}
	if len(items) > 0 {
		i.Metadata = &metadata{items}
	}
	if kind := p.cfg.confidential(); kind != "" {
		i.Confidential = &confidential{kind}
	}
	if len(p.cfg.NetworkTags) > 0 {
		i.Tags = &networkTags{p.cfg.NetworkTags}
	}
	if len(p.cfg.Tags) > 0 {
		i.Params = &instanceParams{p.managerTags()}
	}
	return i, nil
}

func (p *Provider) rootDisk(r *request, zone, description string, labels map[string]string) (attachedDisk, error) {
	image := cmp.Or(r.spec.Image, p.cfg.Image)
	if image == "" {
		return attachedDisk{}, bad("image-name", "it is not set, and the pod names no image")
	}
	path, err := imagePath(p.cfg.Project, image)
	if err != nil {
		return attachedDisk{}, fmt.Errorf("%w: image: %w", provider.ErrInvalidArgument, err)
	}
	disk := attachedDisk{Boot: true, AutoDelete: true, Type: "PERSISTENT", Params: &diskParameters{
		Description: description, SizeGB: p.cfg.RootDisk, Image: path, Labels: labels,
		Type: "zones/" + zone + "/diskTypes/" + p.cfg.DiskType,
	}}
	if p.cfg.DiskKey != "" {
		disk.Key = &diskKey{p.cfg.DiskKey}
	}
	return disk, nil
}

func (p *Provider) interfaces(r *request, zone string) ([]networkInterface, error) {
	first, err := p.networkInterface(zone, p.cfg.Network, p.cfg.Subnetwork, p.cfg.UsePublicIP)
	if err != nil || !r.spec.MultiNic {
		return []networkInterface{first}, err
	}
	if p.cfg.SecondaryNetwork == "" {
		return nil, bad("gcp-secondary-network", "the pod asks for a second interface, which is in a network of its own")
	}
	second, err := p.networkInterface(zone, p.cfg.SecondaryNetwork, p.cfg.SecondarySubnetwork, true)
	return []networkInterface{first, second}, err
}

func (p *Provider) networkInterface(zone, network, subnetwork string, external bool) (networkInterface, error) {
	path, err := networkPath(p.cfg.Project, network)
	if err != nil {
		return networkInterface{}, fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	nic := networkInterface{Network: path, StackType: "IPV4_ONLY"}
	if subnetwork != "" {
		if nic.Subnetwork, err = subnetworkOf(names.RegionOf(zone))(p.cfg.Project, subnetwork); err != nil {
			return networkInterface{}, fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
		}
	}
	if external {
		nic.Access = []accessConfig{{Name: "External NAT", Type: "ONE_TO_ONE_NAT"}}
	}
	return nic, nil
}

// scheduling never starts a VM again by itself: its pod has ended with it. VMs
// that cannot move to another host say so.
func (p *Provider) scheduling(c places.Place) *scheduling {
	s := &scheduling{}
	if p.cfg.Spot {
		s.Model, s.OnPreemption = "SPOT", "DELETE"
	}
	if p.cfg.Spot || p.cfg.confidential() != "" || c.Type.GPUs > 0 {
		s.Maintenance = "TERMINATE"
	}
	return s
}

// managerTags returns the resource manager tags in the form with namespaces, or with
// numbers if the operator gives those.
func (p *Provider) managerTags() map[string]string {
	tags := make(map[string]string, len(p.cfg.Tags))
	for key, value := range p.cfg.Tags {
		if !strings.Contains(key, "/") {
			key = p.cfg.Project + "/" + key
		}
		tags[key] = value
	}
	return tags
}
