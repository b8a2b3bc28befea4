// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// maxBackends is how many servers one call may name (AddBackendServers,
// RemoveBackendServers).
const maxBackends = 20

func (c *Cloud) createListener(protocol string) func(*parameters) (map[string]any, error) {
	return func(p *parameters) (map[string]any, error) {
		b, err := c.configure(p)
		if err != nil {
			return nil, err
		}
		l := &listener{protocol: protocol, port: p.number("ListenerPort", 0), target: p.number("BackendServerPort", 0)}
		bandwidth := p.number("Bandwidth", 0)
		p.text("Description")
		switch {
		case l.port < 1 || l.port > 65535 || l.target < 1 || l.target > 65535:
			return nil, refuse("InvalidParameter", "ListenerPort and BackendServerPort are from 1 to 65535.")
		case bandwidth != -1 && (bandwidth < 1 || bandwidth > 5120):
			return nil, refuse("InvalidParameter", "Bandwidth is -1, or from 1 to 5120.")
		case b.listeners[listenerKey(protocol, l.port)] != nil:
			return nil, refuse("ListenerAlreadyExists", "There is already a listener bound to the port on the specified load balancer.")
		}
		b.listeners[listenerKey(protocol, l.port)] = l
		return object{}, nil
	}
}

// listenerOf returns the listener that the parameters name.
func (b *balancer) listenerOf(p *parameters) (*listener, error) {
	l := b.listeners[listenerKey(p.text("ListenerProtocol"), p.number("ListenerPort", 0))]
	if l == nil {
		return nil, refuse("ResourceNotFound.Listener", "The specified listener does not exist.")
	}
	return l, nil
}

func (c *Cloud) startListener(p *parameters) (map[string]any, error) {
	b, err := c.configure(p)
	if err != nil {
		return nil, err
	}
	l, err := b.listenerOf(p)
	if err == nil {
		l.running = true
	}
	return object{}, err
}

func (c *Cloud) deleteListener(p *parameters) (map[string]any, error) {
	b, err := c.configure(p)
	if err != nil {
		return nil, err
	}
	l, err := b.listenerOf(p)
	if err == nil {
		delete(b.listeners, listenerKey(l.protocol, l.port))
	}
	return object{}, err
}

// describeListeners has pages of two, so that there are several; a next one is
// named by how many came before.
func (c *Cloud) describeListeners(p *parameters) (map[string]any, error) {
	ids := p.list("LoadBalancerId")
	if len(ids) > 10 {
		return nil, refuse("InvalidParameter", "LoadBalancerId: at most 10.")
	}
	if n := p.number("MaxResults", 20); n < 1 || n > 100 {
		return nil, refuse("InvalidParameter", "MaxResults is from 1 to 100.")
	}
	all := []object{}
	for _, id := range ids {
		b := c.balancers[id]
		if b == nil {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(b.listeners)) {
			l := b.listeners[key]
			status := "stopped"
			if l.running {
				status = "running"
			}
			all = append(all, object{"LoadBalancerId": id, "ListenerProtocol": l.protocol, "ListenerPort": l.port, "BackendServerPort": l.target, "Status": status})
		}
	}
	from := min(p.number("NextToken", 0), len(all))
	to := min(from+2, len(all))
	answer := object{"TotalCount": len(all), "MaxResults": 2, "Listeners": all[from:to]}
	if to < len(all) {
		answer["NextToken"] = strconv.Itoa(to)
	}
	return answer, nil
}

// server is one of the parameter BackendServers.
type server struct {
	ServerId string
	Weight   string
	Type     string
}

func serversOf(p *parameters) ([]server, error) {
	var list []server
	if err := json.Unmarshal([]byte(p.text("BackendServers")), &list); err != nil || len(list) == 0 {
		return nil, refuse("InvalidParameter", "BackendServers is not JSON list.")
	}
	if len(list) > maxBackends {
		return nil, refuse("InvalidParameter", "BackendServers: at most %d.", maxBackends)
	}
	return list, nil
}

func (c *Cloud) addServers(p *parameters) (map[string]any, error) {
	b, err := c.configure(p)
	if err != nil {
		return nil, err
	}
	list, err := serversOf(p)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		i := c.instances[s.ServerId]
		if i == nil || i.deleting || c.statusOf(i) != running {
			return nil, refuse("ObtainIpFail", "The specified ECS instance %s does not exist or does not run.", s.ServerId)
		}
		if _, there := b.servers[s.ServerId]; there {
			return nil, refuse("BackendServerAlreadyExist", "The server %s is there.", s.ServerId)
		}
		if weight, err := strconv.Atoi(s.Weight); err != nil || weight < 0 || weight > 100 || s.Type != "ecs" {
			return nil, refuse("InvalidParameter", "BackendServers: %+v.", s)
		}
	}
	for _, s := range list {
		weight, _ := strconv.Atoi(s.Weight) // it was looked at
		b.servers[s.ServerId] = weight
	}
	return object{}, nil
}

func (c *Cloud) removeServers(p *parameters) (map[string]any, error) {
	b, err := c.configure(p)
	if err != nil {
		return nil, err
	}
	list, err := serversOf(p)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		delete(b.servers, s.ServerId)
	}
	return object{}, nil
}
