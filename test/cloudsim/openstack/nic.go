// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// nic is what a new server asks for: a port, or a network, on which Nova makes
// a port that goes with the server.
type nic struct {
	UUID string `json:"uuid"`
	Port string `json:"port"`
}

// problem returns what Nova refuses at once, with its status.
func (n nic) problem(c *Cloud) (status int, message string) {
	if n.Port == "" {
		if n.UUID != Network {
			return 400, "Network " + n.UUID + " could not be found."
		}
		return 0, ""
	}
	p := c.port(n.Port)
	switch {
	case p == nil:
		return 400, "Port " + n.Port + " could not be found."
	case p.DeviceID != "":
		return 409, "Port " + p.ID + " is still in use."
	}
	return 0, ""
}

// attach returns the port of a server.
func (n nic) attach(c *Cloud, server string) *port {
	p := c.port(n.Port)
	if p == nil {
		p = &port{ID: newID(), NetworkID: n.UUID, Groups: []string{Group}, addr: c.address(), owned: true}
		a := p.addr.As4()
		p.MAC = fmt.Sprintf("fa:16:%02x:%02x:%02x:%02x", a[0], a[1], a[2], a[3])
		c.ports = append(c.ports, p)
		c.World.Add(cloudsim.KindNIC, p.ID, nil)
	}
	p.DeviceID = server
	return p
}

// detach frees a port of a server that goes.
func (p *port) detach(c *Cloud, server string) {
	switch {
	case p.DeviceID != server:
	case p.owned:
		c.removePort(p)
	default:
		p.DeviceID = ""
	}
}

func (c *Cloud) port(id string) *port {
	if i := slices.IndexFunc(c.ports, func(p *port) bool { return p.ID == id }); i >= 0 {
		return c.ports[i]
	}
	return nil
}

// addresses are known once the server has its port, before it runs.
func (s *server) addresses() map[string]any {
	if s.Task == "scheduling" || s.Status == "ERROR" {
		return map[string]any{}
	}
	return map[string]any{networkName: []map[string]any{{
		"addr": s.port.addr.String(), "version": 4, "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": s.port.MAC,
	}}}
}

// boolean is one as Nova reads it, which takes words too (its schema
// parameter_types.boolean).
type boolean bool

func (b *boolean) UnmarshalJSON(text []byte) error {
	switch word := strings.ToLower(strings.Trim(string(text), `"`)); {
	case slices.Contains([]string{"true", "1", "on", "yes"}, word):
		*b = true
	case !slices.Contains([]string{"false", "0", "off", "no", "null"}, word):
		return fmt.Errorf("%s is not one of True, False", text)
	}
	return nil
}
