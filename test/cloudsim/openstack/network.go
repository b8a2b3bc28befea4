// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"github.com/outrigger/outrigger/test/cloudsim"
)

type port struct {
	ID, Name, NetworkID, Description, MAC, DeviceID string
	// owned is so for one that Nova has made, which it deletes with the server.
	owned        bool
	Groups, Tags []string
	addr         netip.Addr
}

type floatingIP struct {
	ID, NetworkID, PortID, Description string
	Tags                               []string
	addr                               netip.Addr
}

const fixedStamp = "2026-01-02T03:04:05Z"

func (p *port) json() map[string]any {
	return map[string]any{
		"id": p.ID, "name": p.Name, "network_id": p.NetworkID, "description": p.Description, "mac_address": p.MAC, "device_id": p.DeviceID,
		"device_owner": map[bool]string{true: "compute:nova"}[p.DeviceID != ""], "allowed_address_pairs": []any{}, "binding:vnic_type": "normal",
		"security_groups": p.Groups, "tags": p.Tags, "project_id": ProjectID, "tenant_id": ProjectID, "status": "DOWN", "admin_state_up": true,
		"fixed_ips": []map[string]string{{"subnet_id": Subnet, "ip_address": p.addr.String()}}, "revision_number": 1, "created_at": fixedStamp, "updated_at": fixedStamp,
	}
}

func (f *floatingIP) json() map[string]any {
	return map[string]any{
		"id": f.ID, "floating_network_id": f.NetworkID, "port_id": f.PortID, "description": f.Description, "tags": f.Tags,
		"floating_ip_address": f.addr.String(), "project_id": ProjectID, "tenant_id": ProjectID, "status": "ACTIVE", "created_at": fixedStamp, "updated_at": fixedStamp,
	}
}

func (c *Cloud) networkRoutes() {
	c.versions("/network/", "v2.0")
	const v2 = "/network/v2.0/"
	paging := []string{"limit", "marker"}
	c.handle("GET "+v2+"ports", "get_port", append(paging, "name", "network_id", "mac_address", "device_id", "project_id"), c.listPorts)
	c.handle("POST "+v2+"ports", "create_port", nil, c.createPort)
	c.handle("DELETE "+v2+"ports/{id}", "delete_port", nil, c.deletePort)
	c.handle("PUT "+v2+"ports/{id}/tags", "update_ports_tags", nil, c.tagPort)
	c.handle("GET "+v2+"floatingips", "get_floatingip", append(paging, "floating_network_id", "port_id", "project_id"), c.listFloating)
	c.handle("POST "+v2+"floatingips", "create_floatingip", nil, c.createFloating)
	c.handle("DELETE "+v2+"floatingips/{id}", "delete_floatingip", nil, c.deleteFloating)
	c.handle("PUT "+v2+"floatingips/{id}/tags", "update_floatingips_tags", nil, c.tagFloating)
	c.show(v2+"networks/{id}", "get_network", "network", networks)
	c.handle("GET "+v2+"networks", "get_network", append(paging, "name"), func(k *call) {
		page(k, "networks", []string{Network, ExternalNetwork}, func(id string) string { return id }, func(id string) map[string]any { return networks[id] })
	})
	c.show(v2+"subnets/{id}", "get_subnet", "subnet", map[string]map[string]any{
		Subnet: {"id": Subnet, "network_id": Network}, OtherSubnet: {"id": OtherSubnet, "network_id": ExternalNetwork},
	})
	group := map[string]any{"id": Group, "name": groupName, "tenant_id": ProjectID, "project_id": ProjectID, "description": "", "security_group_rules": []any{}}
	c.show(v2+"security-groups/{id}", "get_security_group", "security_group", map[string]map[string]any{Group: group})
	c.handle("GET "+v2+"security-groups", "get_security_group", append(paging, "name"), func(k *call) {
		k.answer(http.StatusOK, map[string]any{"security_groups": []any{group}})
	})
}

const networkName, groupName = "pods", "default"

var networks = map[string]map[string]any{
	Network:         {"id": Network, "name": networkName, "project_id": ProjectID, "tenant_id": ProjectID, "router:external": false},
	ExternalNetwork: {"id": ExternalNetwork, "name": "public", "project_id": "other", "tenant_id": "other", "router:external": true},
}

// show serves things that do not change.
func (c *Cloud) show(path, action, title string, things map[string]map[string]any) {
	c.handle("GET "+path, action, nil, func(k *call) {
		thing := things[k.r.PathValue("id")]
		if thing == nil {
			k.fail(http.StatusNotFound, "NotFound", title+" "+k.r.PathValue("id")+" could not be found.")
			return
		}
		k.answer(http.StatusOK, map[string]any{title: thing})
	})
}

// page returns a part of a list and the link to the next.
func page[T any](k *call, title string, list []T, id func(T) string, show func(T) map[string]any) {
	query := k.r.URL.Query()
	if marker := query.Get("marker"); marker != "" {
		i := slices.IndexFunc(list, func(t T) bool { return id(t) == marker })
		if i < 0 && len(list) > 0 && k.lostMarker(title, marker) {
			return
		}
		list = list[min(i+1, len(list)):]
	}
	size := k.cloud.PageSize
	if limit, err := strconv.Atoi(query.Get("limit")); err == nil && limit > 0 {
		size = min(size, limit)
	}
	body := map[string]any{}
	if len(list) > size {
		list = list[:size]
		query.Set("marker", id(list[size-1]))
		body[title+"_links"] = []map[string]string{{"rel": "next", "href": "https://" + k.r.Host + k.r.URL.Path + "?" + query.Encode()}}
	}
	shown := []map[string]any{}
	for _, t := range list {
		shown = append(shown, show(t))
	}
	body[title] = shown
	k.answer(http.StatusOK, body)
}

// lostMarker returns a page after what is gone, as Neutron 21 and Nova 26 do:
// for ports and networks it is a 404 of that thing, floating IPs and security
// groups begin again from the start, and Nova says that the request is wrong.
func (k *call) lostMarker(title, marker string) (refused bool) {
	switch title {
	case "floatingips", "security_groups":
		return false
	case "ports", "networks":
		kind := map[string]string{"ports": "Port", "networks": "Network"}[title]
		k.fail(http.StatusNotFound, kind+"NotFound", kind+" "+marker+" could not be found.")
	default:
		k.fail(http.StatusBadRequest, "badRequest", "marker ["+marker+"] not found")
	}
	return true
}

// matches reports whether each parameter that was given has the value.
func matches(k *call, values map[string]string) bool {
	for name, value := range values {
		if want := k.r.URL.Query()[name]; len(want) > 0 && !slices.Contains(want, value) {
			return false
		}
	}
	return true
}

func (c *Cloud) listPorts(k *call) {
	var list []*port
	for _, p := range c.ports {
		if matches(k, map[string]string{"name": p.Name, "network_id": p.NetworkID, "mac_address": p.MAC, "device_id": p.DeviceID, "project_id": ProjectID}) {
			list = append(list, p)
		}
	}
	page(k, "ports", list, func(p *port) string { return p.ID }, (*port).json)
}

type fixedIP struct {
	SubnetID  string `json:"subnet_id"`
	IPAddress string `json:"ip_address"`
}

func (c *Cloud) createPort(k *call) {
	var body struct {
		Port struct {
			NetworkID      string    `json:"network_id"`
			Name           string    `json:"name"`
			Description    string    `json:"description"`
			MACAddress     string    `json:"mac_address"`
			FixedIPs       []fixedIP `json:"fixed_ips"`
			SecurityGroups []string  `json:"security_groups"`
			AdminStateUp   *bool     `json:"admin_state_up"`
		} `json:"port"`
	}
	if !k.read(&body) {
		return
	}
	in := body.Port
	if !k.require(map[string]string{"network_id": in.NetworkID}) || !k.short(map[string]string{"name": in.Name, "description": in.Description}) {
		return
	}
	for _, ip := range in.FixedIPs {
		if ip.SubnetID != Subnet {
			k.fail(http.StatusBadRequest, "InvalidInput", fmt.Sprintf("Invalid input for operation: Failed to create port on network %s, because fixed_ips included invalid subnet %s.", in.NetworkID, ip.SubnetID))
			return
		}
	}
	for _, group := range in.SecurityGroups {
		if group != Group {
			k.fail(http.StatusNotFound, "SecurityGroupNotFound", "Security group "+group+" does not exist")
			return
		}
	}
	if in.NetworkID != Network {
		k.fail(http.StatusNotFound, "NetworkNotFound", "Network "+in.NetworkID+" could not be found.")
		return
	}
	// Networking API v2.0, "Create port": 409 where the address is in use.
	if slices.ContainsFunc(c.ports, func(p *port) bool { return p.NetworkID == in.NetworkID && p.MAC == in.MACAddress }) {
		k.fail(http.StatusConflict, "MacAddressInUse", fmt.Sprintf("Unable to complete operation for network %s. The mac address %s is in use.", in.NetworkID, in.MACAddress))
		return
	}
	p := &port{ID: newID(), Name: in.Name, NetworkID: in.NetworkID, Description: in.Description, MAC: in.MACAddress, Groups: in.SecurityGroups, addr: c.address()}
	c.ports = append(c.ports, p)
	c.World.Add(cloudsim.KindNIC, p.ID, tagsOf(p.Description, nil))
	k.answer(http.StatusCreated, map[string]any{"port": p.json()})
}

func (c *Cloud) portOf(k *call) *port {
	p := c.port(k.r.PathValue("id"))
	if p == nil {
		k.fail(http.StatusNotFound, "PortNotFound", "Port "+k.r.PathValue("id")+" could not be found.")
	}
	return p
}

// deletePort takes a port away also while a server has it. A floating IP loses
// its port and stays.
func (c *Cloud) deletePort(k *call) {
	p := c.portOf(k)
	if p == nil {
		return
	}
	c.removePort(p)
	k.answer(http.StatusNoContent, nil)
}

func (c *Cloud) removePort(p *port) {
	c.ports = slices.DeleteFunc(c.ports, func(other *port) bool { return other == p })
	c.World.Remove(cloudsim.KindNIC, p.ID)
	for _, f := range c.floating {
		if f.PortID == p.ID {
			f.PortID = ""
		}
	}
}

type tagsBody struct {
	Tags []string `json:"tags"`
}

func (k *call) readTags() ([]string, bool) {
	var body tagsBody
	if !k.read(&body) {
		return nil, false
	}
	for _, tag := range body.Tags {
		if !k.short(map[string]string{"tags": tag}) {
			return nil, false
		}
	}
	return body.Tags, true
}

func (c *Cloud) tagPort(k *call) {
	if p := c.portOf(k); p != nil {
		if tags, ok := k.readTags(); ok {
			p.Tags = tags
			c.World.Tag(cloudsim.KindNIC, p.ID, tagsOf("", tags))
			k.answer(http.StatusOK, tagsBody{tags})
		}
	}
}

func (c *Cloud) listFloating(k *call) {
	var list []*floatingIP
	for _, f := range c.floating {
		if matches(k, map[string]string{"floating_network_id": f.NetworkID, "port_id": f.PortID, "project_id": ProjectID}) {
			list = append(list, f)
		}
	}
	page(k, "floatingips", list, func(f *floatingIP) string { return f.ID }, (*floatingIP).json)
}

func (c *Cloud) createFloating(k *call) {
	var body struct {
		FloatingIP struct {
			NetworkID   string `json:"floating_network_id"`
			PortID      string `json:"port_id"`
			Description string `json:"description"`
		} `json:"floatingip"`
	}
	if !k.read(&body) {
		return
	}
	in := body.FloatingIP
	if !k.require(map[string]string{"floating_network_id": in.NetworkID}) || !k.short(map[string]string{"description": in.Description}) {
		return
	}
	switch {
	case in.NetworkID != ExternalNetwork:
		k.fail(http.StatusBadRequest, "BadRequest", "Bad floatingip request: Network "+in.NetworkID+" is not a valid external network.")
		return
	case !slices.ContainsFunc(c.ports, func(p *port) bool { return p.ID == in.PortID }):
		k.fail(http.StatusNotFound, "PortNotFound", "Port "+in.PortID+" could not be found.")
		return
	case slices.ContainsFunc(c.floating, func(f *floatingIP) bool { return f.PortID == in.PortID }):
		k.fail(http.StatusConflict, "FloatingIPPortAlreadyAssociated", "Cannot associate floating IP with port "+in.PortID+", which has one.")
		return
	}
	f := &floatingIP{ID: newID(), NetworkID: in.NetworkID, PortID: in.PortID, Description: in.Description, addr: c.address()}
	c.floating = append(c.floating, f)
	c.World.Add(cloudsim.KindAddress, f.ID, tagsOf(f.Description, nil))
	k.answer(http.StatusCreated, map[string]any{"floatingip": f.json()})
}

func (c *Cloud) floatingOf(k *call) *floatingIP {
	i := slices.IndexFunc(c.floating, func(f *floatingIP) bool { return f.ID == k.r.PathValue("id") })
	if i < 0 {
		k.fail(http.StatusNotFound, "FloatingIPNotFound", "Floating IP "+k.r.PathValue("id")+" could not be found")
		return nil
	}
	return c.floating[i]
}

func (c *Cloud) deleteFloating(k *call) {
	if f := c.floatingOf(k); f != nil {
		c.floating = slices.DeleteFunc(c.floating, func(other *floatingIP) bool { return other == f })
		c.World.Remove(cloudsim.KindAddress, f.ID)
		k.answer(http.StatusNoContent, nil)
	}
}

func (c *Cloud) tagFloating(k *call) {
	if f := c.floatingOf(k); f != nil {
		if tags, ok := k.readTags(); ok {
			f.Tags = tags
			c.World.Tag(cloudsim.KindAddress, f.ID, tagsOf("", tags))
			k.answer(http.StatusOK, tagsBody{tags})
		}
	}
}
