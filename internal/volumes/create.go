// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/outrigger/outrigger/provider"
)

// standardBytes is the size of a volume of which no size is asked for.
const standardBytes = 1 << 30

// sidecarPrefix begins the parameters that are the sidecars' own, and those that they add.
const sidecarPrefix = "csi.storage.k8s.io/"

// validKey is a key of the contract, see [provider.Provider].
var validKey = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// keyOf returns the key of a CSI name: the name, or a hash where it is not valid.
func keyOf(name string) string {
	if validKey.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "csi-" + hex.EncodeToString(sum[:16])
}

// owner returns the tags that all disks and snapshots of this cluster have.
func (c *controller) owner() map[string]string {
	return map[string]string{provider.TagCluster: provider.TagValue(c.options.Cluster)}
}

func (c *controller) tags(key, namespace string) map[string]string {
	tags := c.owner()
	tags[provider.TagKey] = provider.TagValue(key)
	tags[provider.TagCreated] = c.options.Now().UTC().Format(time.RFC3339)
	if namespace != "" {
		tags[provider.TagNamespace] = provider.TagValue(namespace)
	}
	return tags
}

// parameters returns the type of disk that a StorageClass names.
func parameters(all map[string]string) (kind string, err error) {
	for name, value := range all {
		switch {
		case name == "type":
			kind = value
		case name == parameterEncrypted:
			if _, err := isEncrypted(value); err != nil {
				return "", err
			}
		case !strings.HasPrefix(name, sidecarPrefix):
			return "", invalid("unknown parameter %q in the StorageClass: known are type, encrypted and csi.storage.k8s.io/fstype", name)
		}
	}
	return kind, nil
}

// CreateVolume implements [csi.ControllerServer].
func (c *controller) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := checkCapabilities(r.GetVolumeCapabilities(), r.GetParameters()[parameterEncrypted]); err != nil {
		return nil, err
	}
	if len(r.GetMutableParameters()) > 0 {
		return nil, invalid("a VolumeAttributesClass: volumes of this driver have no attributes that can be changed")
	}
	spec, err := c.spec(r)
	if err != nil {
		return nil, err
	}
	zones := zonesOf(r.GetAccessibilityRequirements())
	d, zone, err := c.createIn(ctx, keyOf(r.GetName()), *spec, zones)
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", r.GetName(), err)
	}
	v := volumeOf(d, r.GetVolumeContentSource())
	if yes, _ := isEncrypted(r.GetParameters()[parameterEncrypted]); yes {
		v.VolumeContext = map[string]string{attributeEncrypted: "true"}
	}
	if len(zones) > 0 {
		v.AccessibleTopology = topology(zone)
	}
	return &csi.CreateVolumeResponse{Volume: v}, nil
}

func (c *controller) spec(r *csi.CreateVolumeRequest) (*provider.DiskSpec, error) {
	kind, err := parameters(r.GetParameters())
	if err != nil {
		return nil, err
	}
	s := &provider.DiskSpec{Name: r.GetName(), Type: kind, Tags: c.tags(keyOf(r.GetName()), r.GetParameters()[sidecarPrefix+"pvc/namespace"])}
	if s.Bytes, s.Limit, err = bounds(r.GetCapacityRange()); err != nil {
		return nil, err
	}
	s.FromSnapshot = r.GetVolumeContentSource().GetSnapshot().GetSnapshotId()
	s.FromDisk = r.GetVolumeContentSource().GetVolume().GetVolumeId()
	switch source := s.FromSnapshot != "" || s.FromDisk != ""; {
	case r.GetVolumeContentSource() != nil && !source:
		return nil, invalid("volume_content_source without an id")
	case s.FromSnapshot != "" && c.snapshots == nil:
		return nil, fmt.Errorf("%w: the provider has no snapshots", provider.ErrUnimplemented)
	case s.Bytes == 0 && !source:
		s.Bytes = standardBytes
		if s.Limit != 0 {
			s.Bytes = min(s.Bytes, s.Limit)
		}
	}
	return s, nil
}

// createIn makes the disk in the first of the zones that has room, or where the provider likes. A
// disk of the key that is in a later one, from an earlier attempt, is found there.
func (c *controller) createIn(ctx context.Context, key string, spec provider.DiskSpec, zones []string) (*provider.Disk, string, error) {
	if len(zones) == 0 {
		zones = []string{anyZone}
	}
	var errs []error
	for _, zone := range zones {
		spec.Zone = zone
		if zone == anyZone {
			spec.Zone = ""
		}
		d, err := c.disks.CreateDisk(ctx, key, spec)
		if err == nil && d == nil {
			err = fmt.Errorf("%w: the provider returned neither a disk nor an error", provider.ErrUnknown)
		}
		switch class := provider.Class(err); class {
		case nil:
			return d, zone, nil
		case provider.ErrAlreadyExists: // goes first: it decides what the client does
			errs = append([]error{err}, errs...)
		case provider.ErrCapacity:
			errs = append(errs, err)
		default:
			return nil, "", sourceMissing(err, &spec)
		}
	}
	if len(errs) == 1 || errors.Is(errs[0], provider.ErrAlreadyExists) {
		return nil, "", errs[0]
	}
	return nil, "", errors.Join(errs...)
}

// sourceMissing makes of an id that the cloud cannot have given one that does not exist.
func sourceMissing(err error, s *provider.DiskSpec) error {
	source := s.FromSnapshot + s.FromDisk
	if source != "" && errors.Is(err, provider.ErrInvalidArgument) && strings.Contains(err.Error(), source) {
		return fmt.Errorf("%w: source %s: %v", provider.ErrNotFound, source, err)
	}
	return err
}

// zonesOf returns the zones that are asked for, the preferred ones first.
func zonesOf(r *csi.TopologyRequirement) []string {
	var zones []string
	for _, t := range append(slices.Clone(r.GetPreferred()), r.GetRequisite()...) {
		if zone, ok := t.GetSegments()[TopologyKey]; ok && !slices.Contains(zones, zone) {
			zones = append(zones, zone)
		}
	}
	return zones
}

func topology(zone string) []*csi.Topology {
	return []*csi.Topology{{Segments: map[string]string{TopologyKey: zone}}}
}

func volumeOf(d *provider.Disk, source *csi.VolumeContentSource) *csi.Volume {
	v := &csi.Volume{VolumeId: d.ID, CapacityBytes: d.Bytes, ContentSource: source}
	if d.Zone != "" {
		v.AccessibleTopology = topology(d.Zone)
	}
	return v
}
