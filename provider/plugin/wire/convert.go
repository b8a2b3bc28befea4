// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
)

// each converts a list. It is nil for an empty one.
func each[A, B any](list []A, f func(A) B) []B {
	var all []B
	for _, one := range list {
		all = append(all, f(one))
	}
	return all
}

// eachOf is each for functions that take pointers.
func eachOf[A, B any](list []A, f func(*A) B) []B {
	return each(list, func(one A) B { return f(&one) })
}

func instanceToWire(i *provider.Instance) *pluginpb.Instance {
	if i == nil {
		return nil
	}
	return &pluginpb.Instance{
		Id: i.ID, Name: i.Name, Key: i.Key, Tags: i.Tags, State: string(i.State), CreatedUnixNano: timeToWire(i.Created),
		Zone: i.Zone, Region: i.Region, InstanceType: i.Type, Ips: each(i.IPs, netip.Addr.String),
	}
}

// instanceFromWire returns an instance also with an error, if that is about something
// else than its id: whoever made it can still delete it.
func instanceFromWire(m *pluginpb.Instance) (*provider.Instance, error) {
	if m == nil {
		return nil, nil
	}
	if err := provider.CheckID(m.Id); err != nil {
		return nil, err
	}
	i := &provider.Instance{
		ID: m.Id, Name: m.Name, Key: m.Key, Tags: m.Tags, State: provider.InstanceState(m.State),
		Zone: m.Zone, Region: m.Region, Type: m.InstanceType, Created: timeFromWire(m.CreatedUnixNano),
	}
	var errs []error
	for _, text := range m.Ips {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("instance %s: %.40q is not an address", m.Id, text))
			continue
		}
		if err := provider.CheckAddress(ip); err != nil {
			errs = append(errs, fmt.Errorf("instance %s: %w", m.Id, err))
			continue
		}
		i.IPs = append(i.IPs, ip)
	}
	if len(i.Name) > provider.MaxID {
		errs = append(errs, fmt.Errorf("instance %s: its name has %d bytes, of which it may have %d", m.Id, len(i.Name), provider.MaxID))
		i.Name = ""
	}
	return i, errors.Join(errs...)
}

func specToWire(s provider.InstanceTypeSpec) *pluginpb.InstanceTypeSpec {
	return &pluginpb.InstanceTypeSpec{
		InstanceType: s.InstanceType, Vcpus: s.VCPUs, MemoryMib: s.Memory, Arch: s.Arch, Gpus: s.GPUs, Gpu: s.GPU,
		Image: s.Image, MultiNic: s.MultiNic, Zone: s.Zone, Tags: s.Tags, VolumeDiskIds: each(s.Volumes, func(v provider.CloudVolume) string { return v.DiskID }),
	}
}

func specFromWire(m *pluginpb.InstanceTypeSpec) provider.InstanceTypeSpec {
	return provider.InstanceTypeSpec{
		InstanceType: m.GetInstanceType(), VCPUs: m.GetVcpus(), Memory: m.GetMemoryMib(), Arch: m.GetArch(), GPUs: m.GetGpus(), GPU: m.GetGpu(),
		Image: m.GetImage(), MultiNic: m.GetMultiNic(), Zone: m.GetZone(), Tags: m.GetTags(),
		Volumes: each(m.GetVolumeDiskIds(), func(id string) provider.CloudVolume { return provider.CloudVolume{DiskID: id} }),
	}
}

// timeToWire returns 0 for a time that is unknown.
func timeToWire(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeFromWire(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds).UTC()
}

func typeToWire(t provider.InstanceType) *pluginpb.InstanceType {
	return &pluginpb.InstanceType{
		Name: t.Name, Vcpus: t.VCPUs, MemoryMib: t.Memory, Gpus: t.GPUs, Gpu: t.GPU, Arch: t.Arch, Zones: t.Zones, Price: t.Price,
	}
}

func typeFromWire(m *pluginpb.InstanceType) provider.InstanceType {
	return provider.InstanceType{
		Name: m.Name, VCPUs: m.Vcpus, Memory: m.MemoryMib, GPUs: m.Gpus, GPU: m.Gpu, Arch: m.Arch, Zones: m.Zones, Price: m.Price,
	}
}
