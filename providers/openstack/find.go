// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"github.com/outrigger/outrigger/provider"
)

// resources is what the cloud has of an instance: any part may be missing.
type resources struct {
	id       string
	port     *ports.Port
	server   *servers.Server
	floating *floatingips.FloatingIP
}

func (f *resources) nothing() bool { return f.port == nil && f.server == nil && f.floating == nil }

// listTries is how often a list is begun again.
const listTries = 5

// all reads a list. Where the last thing of one page was deleted before the next was
// asked for, the list is begun again.
func all[T any](ctx context.Context, list pagination.Pager, extract func(pagination.Page) ([]T, error)) ([]T, error) {
	return again(func() ([]T, error) {
		pages, err := list.AllPages(ctx)
		if err != nil {
			return nil, err
		}
		return extract(pages)
	})
}

func again[T any](read func() ([]T, error)) ([]T, error) {
	for try := 1; ; try++ {
		list, err := read()
		if err == nil || try == listTries || !markerLost(err) {
			return list, err
		}
	}
}

// findPort returns the instance's port, or nil.
func (c *clients) findPort(ctx context.Context, id string) (*ports.Port, error) {
	list, err := all(ctx, ports.List(c.network, ports.ListOpts{Name: portName(id)}), ports.ExtractPorts)
	for _, port := range list {
		if port.MACAddress == macOf(id) {
			return &port, nil
		}
	}
	return nil, err
}

// findServers returns the servers of an instance; there is more than one only
// after a race was lost.
func (c *clients) findServers(ctx context.Context, id string) ([]servers.Server, error) {
	list, err := all(ctx, servers.List(c.compute, servers.ListOpts{Name: "-" + short(id) + "$"}), servers.ExtractServers)
	return slices.DeleteFunc(list, func(s servers.Server) bool { return s.Metadata[metaID] != id }), err
}

// findFloating returns the floating IP that was made for the instance, or nil.
// Where there is a port, it is the port's.
func (c *clients) findFloating(ctx context.Context, id, networkID string, port *ports.Port) (*floatingips.FloatingIP, error) {
	opts := floatingips.ListOpts{FloatingNetworkID: networkID, ProjectID: c.project}
	if port != nil {
		opts.PortID = port.ID
	}
	list, err := all(ctx, floatingips.List(c.network, opts), floatingips.ExtractFloatingIPs)
	for _, ip := range list {
		if floatingOwner(ip) == id {
			return &ip, nil
		}
	}
	return nil, err
}

// floatingOwner returns the instance whose floating IP that is, or nothing.
func floatingOwner(ip floatingips.FloatingIP) string {
	if !strings.HasPrefix(ip.Description, descriptionPrefix) {
		return ""
	}
	if key := tagsOf(ip.Description, ip.Tags)[provider.TagKey]; key != "" {
		return instanceID(key)
	}
	return ""
}

// find looks for all parts.
func (p *Provider) find(ctx context.Context, c *clients, id string) (*resources, error) {
	f := &resources{id: id}
	var err error
	if f.port, err = c.findPort(ctx, id); err != nil {
		return nil, err
	}
	list, err := c.findServers(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(list) > 0 {
		f.server = &list[0]
	}
	if p.cfg.FloatingNetwork != "" {
		f.floating, err = c.findFloating(ctx, id, p.cfg.FloatingNetwork, f.port)
	}
	return f, err
}

// tags returns the tags of the instance, from its floating IP or its port, and from
// its server.
func (f *resources) tags() map[string]string {
	tags := map[string]string{}
	if f.floating != nil {
		tags = tagsOf(f.floating.Description, f.floating.Tags)
	}
	if f.port != nil {
		tags = tagsOf(f.port.Description, f.port.Tags)
	}
	if f.server == nil {
		return tags
	}
	for key, value := range f.server.Metadata {
		if key != metaID && key != metaName {
			tags[key] = value
		}
	}
	return tags
}

// instance converts a server to the contract's type.
func (p *Provider) instance(f *resources) *provider.Instance {
	tags := f.tags()
	i := &provider.Instance{
		ID: f.id, Name: portName(f.id), IPs: p.addresses(f), Key: tags[provider.TagKey], Tags: tags,
		State: provider.StateDeleting, Region: p.cfg.Region,
	}
	if f.server == nil {
		if created, err := time.Parse(time.RFC3339, tags[provider.TagCreated]); err == nil {
			i.Created = created
		}
		return i
	}
	i.Created, i.State, i.Zone = f.server.Created, stateOf(f.server), f.server.AvailabilityZone
	if name := f.server.Metadata[metaName]; name != "" {
		i.Name = name
	}
	i.Type, _ = f.server.Flavor["original_name"].(string)
	return i
}

// addresses returns the addresses at which nodes reach the VM: the floating IP if one
// is configured, else those of the port.
func (p *Provider) addresses(f *resources) []netip.Addr {
	if p.cfg.FloatingNetwork != "" {
		if f.floating == nil {
			return nil
		}
		addr, err := netip.ParseAddr(f.floating.FloatingIP)
		if err != nil {
			return nil
		}
		return []netip.Addr{addr}
	}
	if f.port == nil {
		return nil
	}
	// One address: IPs[1] would be that of a second interface.
	var first netip.Addr
	for _, ip := range f.port.FixedIPs {
		addr, err := netip.ParseAddr(ip.IPAddress)
		if err == nil && (!first.IsValid() || addr.Is4() && !first.Is4()) {
			first = addr
		}
	}
	if !first.IsValid() {
		return nil
	}
	return []netip.Addr{first}
}

// Statuses of a server (Nova's documentation, "Server concepts").
const (
	statusActive = "ACTIVE"
	statusBuild  = "BUILD"
	statusError  = "ERROR"
	statusGone   = "DELETED"
)

func stateOf(s *servers.Server) provider.InstanceState {
	if s.TaskState == "deleting" {
		return provider.StateDeleting
	}
	switch s.Status {
	case statusBuild:
		return provider.StatePending
	case "SHUTOFF", "SUSPENDED", "PAUSED", "SHELVED", "SHELVED_OFFLOADED", statusError:
		return provider.StateStopped
	case statusGone, "SOFT_DELETED":
		return provider.StateDeleting
	}
	return provider.StateRunning // ACTIVE, REBOOT, RESIZE and others that run
}
