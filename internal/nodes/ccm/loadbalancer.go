// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/outrigger/outrigger/internal/providerid"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/keylock"
)

// tagService is on a load balancer, and names its Service.
const tagService = "outrigger-service"

// balancers implements [cloudprovider.LoadBalancer].
type balancers struct {
	fleet      *fleet
	capability provider.LoadBalancerController
	locks      *keylock.Locks
}

// LoadBalancer returns false where the provider has none: then the controller of
// Services does not start.
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	capability, ok := provider.As[provider.LoadBalancerController](c.options.Provider)
	if c.options.Balancers != nil {
		capability, ok = c.options.Balancers, true
	}
	if !ok {
		return nil, false
	}
	return &balancers{c.fleet, capability, &c.balancing}, true
}

// GetLoadBalancerName returns the key: a UID is unique across clusters.
func (b *balancers) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

// GetLoadBalancer returns the one of a Service, if there is one.
func (b *balancers) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (status *v1.LoadBalancerStatus, exists bool, err error) {
	there, err := call(ctx, b.fleet, "get-load-balancer", func(ctx context.Context) (*provider.LoadBalancer, error) {
		return b.capability.GetLoadBalancer(ctx, b.GetLoadBalancerName(ctx, cluster, service))
	})
	if errors.Is(err, provider.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return statusOf(there), true, nil
}

// EnsureLoadBalancer creates the load balancer or updates it.
func (b *balancers) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	spec, err := b.specOf(service, nodes)
	if err != nil {
		return nil, err
	}
	spec.Key = b.GetLoadBalancerName(ctx, cluster, service)
	maps.Copy(spec.Tags, b.fleet.options.Tags)
	made, err := call(ctx, b.fleet, "ensure-load-balancer", func(ctx context.Context) (*provider.LoadBalancer, error) {
		return b.capability.EnsureLoadBalancer(ctx, spec)
	})
	if err != nil {
		return nil, err
	}
	return statusOf(made), nil
}

// UpdateLoadBalancer updates the backends. It creates no load balancer: when Nodes
// change the controller calls it for all Services that it knew, some of whose load
// balancers it may have deleted since.
func (b *balancers) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	unlock, err := b.locks.Take(ctx, b.GetLoadBalancerName(ctx, cluster, service))
	if err != nil {
		return err
	}
	defer unlock()
	_, exists, err := b.GetLoadBalancer(ctx, cluster, service)
	if err == nil && !exists {
		err = fmt.Errorf("%w: Service %s/%s has no load balancer", provider.ErrNotFound, service.Namespace, service.Name)
	}
	if err == nil {
		_, err = b.EnsureLoadBalancer(ctx, cluster, service, nodes)
	}
	return err
}

// EnsureLoadBalancerDeleted removes it.
func (b *balancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	unlock, err := b.locks.Take(ctx, b.GetLoadBalancerName(ctx, cluster, service))
	if err != nil {
		return err
	}
	defer unlock()
	return deleteBalancer(ctx, b.fleet, b.capability, b.GetLoadBalancerName(ctx, cluster, service))
}

func deleteBalancer(ctx context.Context, f *fleet, capability provider.LoadBalancerController, key string) error {
	_, err := call(ctx, f, "delete-load-balancer", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, capability.DeleteLoadBalancer(ctx, key)
	})
	return err
}

// specOf refuses settings that cannot be honoured. A restriction of who may
// connect is never dropped silently.
func (b *balancers) specOf(service *v1.Service, nodes []*v1.Node) (provider.LoadBalancerSpec, error) {
	spec := provider.LoadBalancerSpec{
		Tags: map[string]string{tagService: labelValue(service.Namespace + "." + service.Name)}, Annotations: maps.Clone(service.Annotations),
	}
	delete(spec.Annotations, v1.LastAppliedConfigAnnotation) // what kubectl keeps for itself, which is large
	switch {
	case len(service.Spec.LoadBalancerSourceRanges) > 0:
		return spec, fmt.Errorf("%w: spec.loadBalancerSourceRanges %v: this provider's load balancers cannot keep anybody out", provider.ErrInvalidArgument, service.Spec.LoadBalancerSourceRanges)
	case service.Spec.LoadBalancerIP != "":
		return spec, fmt.Errorf("%w: spec.loadBalancerIP %s: this provider chooses addresses itself", provider.ErrInvalidArgument, service.Spec.LoadBalancerIP)
	case service.Spec.SessionAffinity != "" && service.Spec.SessionAffinity != v1.ServiceAffinityNone:
		return spec, fmt.Errorf("%w: spec.sessionAffinity %s: behind this provider's load balancers all clients may look like one", provider.ErrInvalidArgument, service.Spec.SessionAffinity)
	}
	if err := b.checkFamilies(service); err != nil {
		return spec, err
	}
	for _, port := range service.Spec.Ports {
		if port.NodePort == 0 {
			return spec, fmt.Errorf("%w: port %d has no node port: leave spec.allocateLoadBalancerNodePorts true", provider.ErrInvalidArgument, port.Port)
		}
		// The provider checks the protocol.
		spec.Ports = append(spec.Ports, provider.LoadBalancerPort{Port: uint16(port.Port), Target: uint16(port.NodePort), Protocol: string(port.Protocol)})
	}
	for _, node := range nodes {
		if addr, ok := backendAddress(node); ok {
			ref, _ := providerid.Parse(b.fleet.options.Name, node.Spec.ProviderID)
			spec.Backends = append(spec.Backends, provider.LoadBalancerBackend{Name: node.Name, Addr: addr, InstanceID: ref.ID})
		}
	}
	slices.SortFunc(spec.Backends, func(a, b provider.LoadBalancerBackend) int { return strings.Compare(a.Name, b.Name) })
	return spec, nil
}

// addressed is a controller whose load balancers all have one address.
type addressed interface{ Address() netip.Addr }

// checkFamilies refuses a Service to which this provider's load balancers, which
// have IPv4 addresses unless they say otherwise, do not lead.
func (b *balancers) checkFamilies(service *v1.Service) error {
	have := v1.IPv4Protocol
	if one, ok := b.capability.(addressed); ok && one.Address().Is6() {
		have = v1.IPv6Protocol
	}
	want, policy := service.Spec.IPFamilies, service.Spec.IPFamilyPolicy
	switch {
	case policy != nil && *policy == v1.IPFamilyPolicyRequireDualStack:
		return fmt.Errorf("%w: spec.ipFamilyPolicy %s: this provider's load balancers have %s addresses alone", provider.ErrInvalidArgument, *policy, have)
	case len(want) > 0 && !slices.Contains(want, have):
		return fmt.Errorf("%w: spec.ipFamilies %v: this provider's load balancers have %s addresses alone", provider.ErrInvalidArgument, want, have)
	}
	return nil
}

// backendAddress returns the first internal address of a Node, or else its first
// address.
func backendAddress(node *v1.Node) (first netip.Addr, ok bool) {
	for _, a := range node.Status.Addresses {
		addr, err := netip.ParseAddr(a.Address)
		if err != nil {
			continue
		}
		if a.Type == v1.NodeInternalIP {
			return addr, true
		}
		if !ok {
			first, ok = addr, true
		}
	}
	return first, ok
}

func statusOf(b *provider.LoadBalancer) *v1.LoadBalancerStatus {
	status := &v1.LoadBalancerStatus{}
	for _, addr := range b.Addrs {
		status.Ingress = append(status.Ingress, v1.LoadBalancerIngress{IP: addr.String()})
	}
	return status
}

// Leftovers finds load balancers of Services that are gone. The controller of
// Services deletes them by itself; what it has not, such as when a process ended
// while it made one, or somebody took the Service's finalizer away, is left.
type Leftovers struct {
	fleet      *fleet
	capability provider.LoadBalancerController
	// services returns all Services there are now, from the API server itself.
	services func(context.Context) ([]v1.Service, error)
	log      *slog.Logger
	// seen is when one was first seen without its Service, by key.
	seen map[string]time.Time
}

// Leftovers returns nil where there are none to look for: without load balancers,
// without tags that tell the cluster's own from others', or when Options.LeftAfter
// is 0.
func (c *Cloud) Leftovers(services func(context.Context) ([]v1.Service, error), log *slog.Logger) *Leftovers {
	b, ok := c.LoadBalancer()
	if !ok || len(c.options.Tags) == 0 || c.options.LeftAfter == 0 {
		return nil
	}
	return &Leftovers{c.fleet, b.(*balancers).capability, services, log, map[string]time.Time{}}
}

// Run checks until ctx ends, and at least twice before it deletes one.
func (l *Leftovers) Run(ctx context.Context) {
	ticker := time.NewTicker(max(l.fleet.options.LeftAfter/3, time.Millisecond))
	defer ticker.Stop()
	for {
		if err := l.collect(ctx); err != nil && ctx.Err() == nil {
			l.log.Error("cannot look for load balancers that are left", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// collect deletes load balancers that have been without a Service for long enough.
// It lists load balancers before Services: each was made for a Service that
// existed before, so a missing Service is gone.
func (l *Leftovers) collect(ctx context.Context) error {
	list, err := call(ctx, l.fleet, "list-load-balancers", func(ctx context.Context) ([]provider.LoadBalancer, error) {
		return l.capability.ListLoadBalancers(ctx, l.fleet.options.Tags)
	})
	if err != nil {
		return err
	}
	services, err := l.services(ctx)
	if err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	left := map[string]provider.LoadBalancer{}
	for _, b := range list {
		if b.Tags[tagService] != "" && b.Key != "" {
			left[b.Key] = b
		}
	}
	for i := range services {
		delete(left, cloudprovider.DefaultLoadBalancerName(&services[i]))
	}
	return l.deleteOld(ctx, left)
}

func (l *Leftovers) deleteOld(ctx context.Context, left map[string]provider.LoadBalancer) error {
	maps.DeleteFunc(l.seen, func(key string, _ time.Time) bool { _, there := left[key]; return !there })
	now := l.fleet.options.Now()
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(left)) {
		if l.seen[key].IsZero() {
			l.seen[key] = now
			l.log.Warn("a load balancer has no Service", "loadbalancer", key, "service", left[key].Tags[tagService], "deletedAfter", l.fleet.options.LeftAfter.String())
		}
		if now.Sub(l.seen[key]) < l.fleet.options.LeftAfter {
			continue
		}
		err := deleteBalancer(ctx, l.fleet, l.capability, key)
		if err == nil {
			l.log.Warn("deleted a load balancer whose Service is gone", "loadbalancer", key, "service", left[key].Tags[tagService])
			delete(l.seen, key)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
