// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/cached"
	"github.com/outrigger/outrigger/provider/kit/keylock"
	"github.com/outrigger/outrigger/provider/kit/lifetime"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Provider makes servers in one project. Several processes may have one for
// the same project at a time.
type Provider struct {
	cfg     Config
	conn    *connection
	locks   keylock.Locks
	flavors cached.Values[*catalogue]
	zones   cached.Values[[]string] // of Nova
	// pace is how often the cloud is asked whether something has happened.
	pace poll.Pace
	// makerWait is how long a port without a server may be another process's
	// that makes an instance of it now.
	makerWait time.Duration
	life      lifetime.Lifetime
	late      lates
	// lateness is how long a call that was lost may go on.
	lateness time.Duration
}

// New checks cfg. It connects when it is first called: a cloud that is down for
// a while must not keep this process from starting.
func New(cfg Config) (*Provider, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	conn, err := newConnection(cfg)
	if err != nil {
		return nil, err
	}
	return &Provider{cfg: cfg, conn: conn, pace: poll.Pace{First: 200 * time.Millisecond, Max: 3 * time.Second}, makerWait: 10 * time.Second, lateness: lateness}, nil
}

// Teardown closes the connections; servers run on.
func (p *Provider) Teardown() error {
	p.life.End()
	p.conn.http.CloseIdleConnections()
	return nil
}

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (found *provider.Instance, err error) {
	defer explain(&err, "get instance %s", instanceID)
	_, f, err := p.existing(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	return p.instance(f), nil
}

// server returns that of an instance, or ErrNotFound.
func (p *Provider) server(ctx context.Context, id string) (*clients, *servers.Server, error) {
	c, f, err := p.existing(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if f.server == nil {
		return nil, nil, fmt.Errorf("%w: instance %s has no server", provider.ErrNotFound, id)
	}
	return c, f.server, nil
}

// existing returns what there is of an instance, or ErrNotFound.
func (p *Provider) existing(ctx context.Context, id string) (*clients, *resources, error) {
	if !names.IsUUID(id) {
		return nil, nil, fmt.Errorf("%w: no instance %q: ids are UUIDs", provider.ErrNotFound, id)
	}
	c, err := p.conn.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	f, err := p.find(ctx, c, id)
	if err == nil && f.nothing() {
		err = fmt.Errorf("%w: no instance %s in project %s", provider.ErrNotFound, id, c.project)
	}
	return c, f, err
}

// ListInstances implements provider.Lister. What has lost its server or its
// port is listed too.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) (list []provider.Instance, err error) {
	defer explain(&err, "list instances")
	c, err := p.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	found, err := p.findAll(ctx, c)
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if tags := found[id].tags(); provider.HasTags(tags, match) && instanceID(tags[provider.TagKey]) == id {
			list = append(list, *p.instance(found[id]))
		}
	}
	return list, err
}

// findAll returns the parts of all instances, by their ids.
func (p *Provider) findAll(ctx context.Context, c *clients) (map[string]*resources, error) {
	found := map[string]*resources{}
	at := func(id string) *resources {
		if found[id] == nil {
			found[id] = &resources{id: id}
		}
		return found[id]
	}
	portList, err := listed(ctx, c.network, ports.ListOpts{NetworkID: p.cfg.Network}.ToPortListQuery, (*portPage).read, "ports")
	if err != nil {
		return nil, err
	}
	for _, port := range portList {
		if id := strings.TrimPrefix(port.Name, namePrefix); names.IsUUID(id) && port.MACAddress == macOf(id) {
			at(id).port = port.model()
		}
	}
	serverList, err := listed(ctx, c.compute, servers.ListOpts{Name: "^" + namePrefix}.ToServerListQuery, (*serverPage).read, "servers", "detail")
	if err != nil {
		return nil, err
	}
	for _, s := range serverList {
		if id := s.Metadata[metaID]; names.IsUUID(id) {
			at(id).server = s.model()
		}
	}
	if p.cfg.FloatingNetwork == "" {
		return found, nil
	}
	opts := floatingips.ListOpts{FloatingNetworkID: p.cfg.FloatingNetwork, ProjectID: c.project}
	floating, err := listed(ctx, c.network, opts.ToFloatingIPListQuery, (*floatingPage).read, "floatingips")
	if err != nil {
		return nil, err
	}
	for _, ip := range floating {
		model := ip.model()
		if id := floatingOwner(model); id != "" {
			at(id).floating = &model
		}
	}
	return found, nil
}

// consoleLine is how long lines of a console are taken to be: Nova answers
// lines, not bytes.
const consoleLine = 20

// Console implements provider.ConsoleReader.
func (p *Provider) Console(ctx context.Context, instanceID string, tailBytes int64) (tail []byte, err error) {
	defer explain(&err, "console of %s", instanceID)
	c, s, err := p.server(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	text, err := consoleTail(tailBytes, func(lines int) (string, error) {
		return servers.ShowConsoleOutput(ctx, c.compute, s.ID, servers.ShowConsoleOutputOpts{Length: lines}).Extract()
	})
	// A server without a console is a 404 too.
	if status(err, http.StatusConflict) || status(err, http.StatusNotFound) && servers.Get(ctx, c.compute, s.ID).Err == nil {
		return nil, nil // it has none yet
	}
	return []byte(text[max(0, int64(len(text))-tailBytes):]), err
}

// consoleTail asks for more lines until they have so many bytes, or are all there
// are. What Nova gives of n lines has n-1 line feeds.
func consoleTail(bytes int64, ask func(lines int) (string, error)) (string, error) {
	const most = 1 << 20
	for lines := int(min(bytes/consoleLine+1, most)); ; lines = min(8*lines, most) {
		text, err := ask(lines)
		if err != nil || int64(len(text)) >= bytes || strings.Count(text, "\n")+1 < lines || lines == most {
			return text, err
		}
	}
}
