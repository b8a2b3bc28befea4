// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	ecs "github.com/alibabacloud-go/ecs-20140526/v7/client"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// listener is one as the cloud describes it (DescribeLoadBalancerListeners).
type listener struct {
	ListenerProtocol                string
	ListenerPort, BackendServerPort int
	Status, VServerGroupId          string
}

const listenerRunning = "running"

// is reports whether it leads where the port should, which cannot be changed.
func (l listener) is(port provider.LoadBalancerPort) bool {
	return l.ListenerProtocol == protocolOf(port) && l.ListenerPort == int(port.Port) && l.BackendServerPort == int(port.Target) && l.VServerGroupId == ""
}

func (l listener) answer() provider.LoadBalancerPort {
	return provider.LoadBalancerPort{Port: uint16(l.ListenerPort), Target: uint16(l.BackendServerPort), Protocol: strings.ToUpper(l.ListenerProtocol)}
}

func protocolOf(port provider.LoadBalancerPort) string {
	if port.TCP() {
		return "tcp"
	}
	return strings.ToLower(port.Protocol)
}

// listeners returns all pages.
func (p *Provider) listeners(ctx context.Context, id string) ([]listener, error) {
	var list []listener
	for next := ""; ; {
		var answer struct {
			Listeners []listener
			NextToken string
		}
		q := query{"LoadBalancerId.1": id, "MaxResults": "100", "NextToken": next}
		if err := p.slb(ctx, "DescribeLoadBalancerListeners", q, &answer); err != nil {
			return nil, err
		}
		list = append(list, answer.Listeners...)
		if next = answer.NextToken; next == "" {
			return list, nil
		}
	}
}

// usualSteps are as many as a change takes that the cloud shows at once: something
// is made, then started. After more it is asked more slowly.
const usualSteps = 3

// until repeats one step after the other until there is none left to do, since
// what a lost reply did is seen only by looking again.
func (p *Provider) until(ctx context.Context, step func() (done bool, err error)) error {
	t := p.pace.ticker()
	for n := 1; ; n++ {
		done, err := step()
		if err == nil && done {
			return nil
		}
		if err != nil && !errors.Is(err, errAgain) {
			return err
		}
		if err != nil || n > usualSteps {
			if waitErr := t.Wait(ctx); waitErr != nil {
				return errors.Join(failure.Classify(waitErr), err)
			}
		}
	}
}

// errAgain means that the state that was read has changed meanwhile.
var errAgain = fmt.Errorf("%w: the load balancer is being changed", provider.ErrUnavailable)

// changed marks errors as errAgain which say that the change was made already or that
// its object is gone: the state has to be read again.
func changed(err error) error {
	if failure.HasCode(err, codeNotRunning) || errors.Is(err, provider.ErrAlreadyExists) || errors.Is(err, provider.ErrNotFound) && !failure.HasCode(err, codeNoBalancer) {
		return fmt.Errorf("%w: %v", errAgain, err)
	}
	return err
}

// listen makes the listeners those of the ports, and starts them.
func (p *Provider) listen(ctx context.Context, b *clb, ports []provider.LoadBalancerPort) error {
	return p.until(ctx, func() (bool, error) {
		there, err := p.listeners(ctx, b.LoadBalancerId)
		if err != nil {
			return false, err
		}
		steps := 0
		for _, l := range there {
			wanted := slices.ContainsFunc(ports, l.is)
			if wanted && l.Status == listenerRunning {
				continue
			}
			action := "DeleteLoadBalancerListener"
			if wanted {
				action = "StartLoadBalancerListener"
			}
			steps++
			if err := p.changeBalancer(ctx, b, action, query{"ListenerPort": strconv.Itoa(l.ListenerPort), "ListenerProtocol": l.ListenerProtocol}); err != nil {
				return false, changed(err)
			}
		}
		for _, port := range ports {
			if slices.ContainsFunc(there, func(l listener) bool { return l.is(port) }) {
				continue
			}
			steps++
			if err := p.makeListener(ctx, b, port); err != nil {
				return false, changed(err)
			}
		}
		return steps == 0, nil
	})
}

// makeListener makes one, which does not run yet. Its bandwidth is the load
// balancer's.
func (p *Provider) makeListener(ctx context.Context, b *clb, port provider.LoadBalancerPort) error {
	return p.changeBalancer(ctx, b, "CreateLoadBalancer"+strings.ToUpper(protocolOf(port))+"Listener", query{
		"ListenerPort": strconv.Itoa(int(port.Port)), "BackendServerPort": strconv.Itoa(int(port.Target)), "Bandwidth": "-1",
		"Description": "outrigger",
	})
}

// maxServers is how many a call may name (AddBackendServers).
const maxServers = 20

// server is one of the parameter BackendServers.
type server struct{ ServerId, Weight, Type string }

// servers returns the instances that connections go to.
func (p *Provider) servers(ctx context.Context, id string) ([]string, error) {
	var answer struct {
		BackendServers struct{ BackendServer []struct{ ServerId string } }
	}
	if err := p.slb(ctx, "DescribeLoadBalancerAttribute", query{"LoadBalancerId": id}, &answer); err != nil {
		return nil, err
	}
	var ids []string
	for _, s := range answer.BackendServers.BackendServer {
		ids = append(ids, s.ServerId)
	}
	return ids, nil
}

// serve makes the servers those of the backends. Machines that are not
// instances of the cloud cannot be, and instances that do not run are not.
func (p *Provider) serve(ctx context.Context, b *clb, backends []provider.LoadBalancerBackend) error {
	wanted, err := p.instancesOf(backends)
	if err != nil {
		return err
	}
	return p.until(ctx, func() (bool, error) {
		there, err := p.servers(ctx, b.LoadBalancerId)
		if err != nil {
			return false, err
		}
		surplus := without(there, wanted)
		missing, unknown, err := p.running(ctx, without(wanted, there))
		if err != nil {
			return false, err
		}
		if err := p.changeServers(ctx, b, "RemoveBackendServers", surplus); err != nil {
			return false, changed(err)
		}
		if err := p.changeServers(ctx, b, "AddBackendServers", missing); err != nil {
			return false, changed(err)
		}
		for _, id := range unknown {
			// It is gone, or the cloud does not show it yet: then it takes it.
			err := p.changeServers(ctx, b, "AddBackendServers", []string{id})
			switch {
			case err == nil, errors.Is(err, provider.ErrAlreadyExists):
			case !aboutServer(err):
				return false, err
			default:
				logger().Warn("a Node's instance is not there, and no server of the load balancer", "instance", id, "loadbalancer", b.LoadBalancerId, "error", err)
				wanted = without(wanted, []string{id})
			}
		}
		return len(surplus)+len(missing) == 0, nil
	})
}

// aboutServer reports whether the cloud has refused the one server that a call named.
func aboutServer(err error) bool {
	class := provider.Class(err)
	return !failure.HasCode(err, codeNoBalancer) && errors.As(err, new(*failure.Error)) &&
		(class == provider.ErrNotFound || class == provider.ErrInvalidArgument || class == provider.ErrUnknown)
}

// instancesOf returns the instances of backends, each once.
func (p *Provider) instancesOf(backends []provider.LoadBalancerBackend) ([]string, error) {
	var ids, others []string
	for _, b := range backends {
		if isID(b.InstanceID) {
			ids = append(ids, b.InstanceID)
		} else {
			others = append(others, b.Name)
		}
	}
	if len(ids) == 0 && len(others) > 0 {
		return nil, fmt.Errorf("%w: no Node is an instance of the cloud: %s have no providerID such as alicloud://%s.i-2ze1w9aj2aonw", provider.ErrInvalidArgument, strings.Join(others, ", "), p.cfg.Region)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func without(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(id string) bool { return slices.Contains(others, id) })
}

// running returns those of the instances that run, and those that the cloud does
// not show. It waits for those that will run soon.
func (p *Provider) running(ctx context.Context, ids []string) (ready, unknown []string, err error) {
	unknown = slices.DeleteFunc(slices.Clone(ids), p.memory.deleted.get)
	for part := range slices.Chunk(slices.Clone(unknown), 100) { // DescribeInstances, InstanceIds
		text, err := json.Marshal(part)
		if err != nil {
			return nil, nil, fmt.Errorf("encode %q: %w", part, err)
		}
		list, err := p.describeInstances(ctx, &ecs.DescribeInstancesRequest{InstanceIds: new(string(text))})
		if err != nil {
			return nil, nil, err
		}
		for _, m := range list {
			unknown = without(unknown, []string{m.id})
			switch m.status {
			case statusRunning:
				ready = append(ready, m.id)
			case statusPending, statusStarting:
				return nil, nil, fmt.Errorf("%w: instance %s is %s", errAgain, m.id, m.status)
			}
		}
	}
	return ready, unknown, nil
}

func (p *Provider) changeServers(ctx context.Context, b *clb, action string, ids []string) error {
	for part := range slices.Chunk(ids, maxServers) {
		var list []server
		for _, id := range part {
			list = append(list, server{id, "100", "ecs"})
		}
		text, err := json.Marshal(list)
		if err != nil {
			return fmt.Errorf("encode %q: %w", part, err)
		}
		if err := p.changeBalancer(ctx, b, action, query{"BackendServers": string(text)}); err != nil {
			return err
		}
	}
	return nil
}
