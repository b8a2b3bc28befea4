// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/outrigger/outrigger/provider"
)

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
	var list []provider.LoadBalancer
	err := l.fleet.call(ctx, "list-load-balancers", func(ctx context.Context) (err error) {
		list, err = l.capability.ListLoadBalancers(ctx, l.fleet.options.Tags)
		return err
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
		err := l.fleet.call(ctx, "delete-load-balancer", func(ctx context.Context) error { return l.capability.DeleteLoadBalancer(ctx, key) })
		if err == nil {
			l.log.Warn("deleted a load balancer whose Service is gone", "loadbalancer", key, "service", left[key].Tags[tagService])
			delete(l.seen, key)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
