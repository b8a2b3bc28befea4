// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/keylock"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Provider makes servers in one project. Several processes may have one for
// the same project at a time.
type Provider struct {
	cfg     Config
	conn    *connection
	locks   keylock.Locks
	flavors catalogues
	// pace is how often the cloud is asked whether something has happened.
	pace poll.Pace
	// makerWait is how long a port without a server may be another process's
	// that makes an instance of it now.
	makerWait time.Duration
	// life ends with Teardown.
	life context.Context
	end  context.CancelFunc
	late lates
	// lateness is how long a call that was lost may go on.
	lateness time.Duration
}

var (
	_ provider.Provider           = (*Provider)(nil)
	_ provider.Lister             = (*Provider)(nil)
	_ provider.Getter             = (*Provider)(nil)
	_ provider.InstanceTypeLister = (*Provider)(nil)
	_ provider.ConsoleReader      = (*Provider)(nil)
	_ provider.PowerController    = (*Provider)(nil)
)

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
	p := &Provider{cfg: cfg, conn: conn, pace: poll.Pace{First: 200 * time.Millisecond, Max: 3 * time.Second}, makerWait: 10 * time.Second, lateness: lateness}
	p.life, p.end = context.WithCancel(context.Background())
	return p, nil
}

// Teardown closes the connections; servers run on.
func (p *Provider) Teardown() error {
	p.end()
	p.conn.close()
	return nil
}

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (*provider.Instance, error) {
	_, f, err := p.existing(ctx, instanceID)
	if err != nil {
		return nil, classify(fmt.Errorf("get instance %s: %w", instanceID, err))
	}
	return p.instance(f), nil
}

// existing returns what there is of an instance, or ErrNotFound.
func (p *Provider) existing(ctx context.Context, id string) (*clients, *resources, error) {
	if !isID(id) {
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
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	c, err := p.conn.open(ctx)
	if err != nil {
		return nil, classify(fmt.Errorf("list instances: %w", err))
	}
	all, err := p.findAll(ctx, c)
	if err != nil {
		return nil, classify(fmt.Errorf("list instances: %w", err))
	}
	var list []provider.Instance
	for _, f := range all {
		if tags := f.tags(); provider.HasTags(tags, match) && instanceID(tags[provider.TagKey]) == f.id {
			list = append(list, *p.instance(f))
		}
	}
	return list, nil
}

// all are the parts of instances, in the order in which they were seen.
type all struct {
	byID  map[string]*resources
	order []*resources
}

func (a *all) at(id string) *resources {
	if a.byID[id] == nil {
		a.byID[id] = &resources{id: id}
		a.order = append(a.order, a.byID[id])
	}
	return a.byID[id]
}

func (p *Provider) findAll(ctx context.Context, c *clients) ([]*resources, error) {
	a := &all{byID: map[string]*resources{}}
	pages, err := allPages(ctx, ports.List(c.network, ports.ListOpts{NetworkID: p.cfg.Network}))
	if err != nil {
		return nil, err
	}
	portList, err := ports.ExtractPorts(pages)
	if err != nil {
		return nil, err
	}
	for _, port := range portList {
		if id := strings.TrimPrefix(port.Name, namePrefix); isID(id) && port.MACAddress == macOf(id) {
			a.at(id).port = &port
		}
	}
	if pages, err = allPages(ctx, servers.List(c.compute, servers.ListOpts{Name: "^" + namePrefix})); err != nil {
		return nil, err
	}
	serverList, err := servers.ExtractServers(pages)
	if err != nil {
		return nil, err
	}
	for _, s := range serverList {
		if id := s.Metadata[metaID]; isID(id) {
			a.at(id).server = &s
		}
	}
	return a.order, p.addFloating(ctx, c, a)
}

func (p *Provider) addFloating(ctx context.Context, c *clients, a *all) error {
	if p.cfg.FloatingNetwork == "" {
		return nil
	}
	pages, err := allPages(ctx, floatingips.List(c.network, floatingips.ListOpts{FloatingNetworkID: p.cfg.FloatingNetwork, ProjectID: c.project}))
	if err != nil {
		return err
	}
	list, err := floatingips.ExtractFloatingIPs(pages)
	if err != nil {
		return err
	}
	for _, ip := range list {
		if id := floatingOwner(ip); id != "" {
			a.at(id).floating = &ip
		}
	}
	return nil
}

// consoleLine is how long lines of a console are taken to be: Nova answers
// lines, not bytes.
const consoleLine = 20

// Console implements provider.ConsoleReader.
func (p *Provider) Console(ctx context.Context, instanceID string, tailBytes int64) ([]byte, error) {
	c, f, err := p.existing(ctx, instanceID)
	if err == nil && f.server == nil {
		err = fmt.Errorf("%w: instance %s has no server", provider.ErrNotFound, instanceID)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("console of %s: %w", instanceID, err))
	}
	text, err := consoleTail(tailBytes, func(lines int) (string, error) {
		return servers.ShowConsoleOutput(ctx, c.compute, f.server.ID, servers.ShowConsoleOutputOpts{Length: lines}).Extract()
	})
	if status(err, http.StatusConflict) || status(err, http.StatusNotFound) && p.stillThere(ctx, c, f) {
		return nil, nil // it has none yet
	}
	if err != nil {
		return nil, classify(fmt.Errorf("console of %s: %w", instanceID, err))
	}
	return []byte(text[max(0, int64(len(text))-tailBytes):]), nil
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

// stillThere distinguishes a server without a console, which is a 404 too, from
// one that is gone.
func (p *Provider) stillThere(ctx context.Context, c *clients, f *resources) bool {
	return servers.Get(ctx, c.compute, f.server.ID).Err == nil
}
