// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/outrigger/outrigger/provider/kit/rest"
)

// Lists of everything are read without the library's pages, which decode and encode each page several times.

// link says where the next page of a list begins.
type link struct {
	Rel  string `json:"rel"`
	Href string `json:"href"`
}

func next(links []link) string {
	for _, l := range links {
		if l.Rel == "next" {
			return l.Href
		}
	}
	return ""
}

type listedPort struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	MACAddress  string     `json:"mac_address"`
	Description string     `json:"description"`
	Tags        []string   `json:"tags"`
	FixedIPs    []ports.IP `json:"fixed_ips"`
}

func (p *listedPort) model() *ports.Port {
	return &ports.Port{ID: p.ID, Name: p.Name, MACAddress: p.MACAddress, Description: p.Description, Tags: p.Tags, FixedIPs: p.FixedIPs}
}

type portPage struct {
	Ports []listedPort `json:"ports"`
	Links []link       `json:"ports_links"`
}

func (p *portPage) read() ([]listedPort, []link) { return p.Ports, p.Links }

type listedServer struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Status   string            `json:"status"`
	Created  time.Time         `json:"created"`
	Metadata map[string]string `json:"metadata"`
	Flavor   struct {
		Name string `json:"original_name"`
	} `json:"flavor"`
	TaskState        string `json:"OS-EXT-STS:task_state"`
	AvailabilityZone string `json:"OS-EXT-AZ:availability_zone"`
}

func (s *listedServer) model() *servers.Server {
	return &servers.Server{
		ID: s.ID, Name: s.Name, Status: s.Status, Created: s.Created, Metadata: s.Metadata, TaskState: s.TaskState, AvailabilityZone: s.AvailabilityZone,
		Flavor: map[string]any{"original_name": s.Flavor.Name},
	}
}

type serverPage struct {
	Servers []listedServer `json:"servers"`
	Links   []link         `json:"servers_links"`
}

func (p *serverPage) read() ([]listedServer, []link) { return p.Servers, p.Links }

type listedFloating struct {
	ID          string   `json:"id"`
	Description string   `json:"description"`
	FloatingIP  string   `json:"floating_ip_address"`
	PortID      string   `json:"port_id"`
	Tags        []string `json:"tags"`
}

func (f *listedFloating) model() floatingips.FloatingIP {
	return floatingips.FloatingIP{ID: f.ID, Description: f.Description, FloatingIP: f.FloatingIP, PortID: f.PortID, Tags: f.Tags}
}

type floatingPage struct {
	IPs   []listedFloating `json:"floatingips"`
	Links []link           `json:"floatingips_links"`
}

func (p *floatingPage) read() ([]listedFloating, []link) { return p.IPs, p.Links }

// listed reads all pages of the list at a path of a service.
func listed[P, T any](ctx context.Context, c *gophercloud.ServiceClient, query func() (string, error), read func(*P) ([]T, []link), path ...string) ([]T, error) {
	q, err := query()
	if err != nil {
		return nil, err
	}
	return again(func() (list []T, err error) {
		for url := c.ServiceURL(path...) + q; url != ""; {
			var page P
			if err := decode(ctx, c, url, &page); err != nil {
				return nil, err
			}
			part, links := read(&page)
			list, url = append(list, part...), next(links)
		}
		return list, nil
	})
}

func decode(ctx context.Context, c *gophercloud.ServiceClient, url string, page any) error {
	reply, err := c.Get(ctx, url, nil, &gophercloud.RequestOpts{KeepResponseBody: true})
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	return rest.Decode(reply.Body, page)
}
