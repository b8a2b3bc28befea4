// SPDX-License-Identifier: Apache-2.0

package outrigger

import (
	"context"
	"errors"
	"fmt"
	"time"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

// EnsureCluster creates nothing: a provider has instances only.
func (b *Backend) EnsureCluster(_ context.Context, s *reconciler.ClusterScope) (reconciler.ClusterState, error) {
	cluster, ok := s.Infra.(*infrav1.OutriggerCluster)
	if !ok {
		return reconciler.ClusterState{}, fmt.Errorf("%w: %T is not an OutriggerCluster", provider.ErrInvalidArgument, s.Infra)
	}
	for _, domain := range cluster.Spec.FailureDomains {
		if _, err := b.fleet.in(domain.Name); err != nil {
			return reconciler.ClusterState{}, err
		}
	}
	return reconciler.ClusterState{Provisioned: true, FailureDomains: cluster.Spec.FailureDomains}, nil
}

// DeleteCluster removes instances that lost their machine.
func (b *Backend) DeleteCluster(ctx context.Context, s *reconciler.ClusterScope) (bool, error) {
	owned, err := b.Owned(ctx, s)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, o := range owned {
		errs = append(errs, b.Remove(ctx, s, o.ID))
	}
	if err := errors.Join(errs...); err != nil || len(owned) > 0 {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.lists, s.Key)
	return true, nil
}

// Owned implements [reconciler.Inventory].
func (b *Backend) Owned(ctx context.Context, s *reconciler.ClusterScope) ([]reconciler.Owned, error) {
	list, err := b.fleet.list(ctx, map[string]string{provider.TagCluster: s.Key})
	if err != nil {
		return nil, err
	}
	var owned []reconciler.Owned
	for _, i := range list { // also those that are being deleted: the remains of a failed deletion look the same
		owned = append(owned, reconciler.Owned{ID: i.ID, Key: i.Key, Created: i.Created})
	}
	return owned, nil
}

// Remove implements [reconciler.Inventory].
func (b *Backend) Remove(ctx context.Context, _ *reconciler.ClusterScope, id string) error {
	return b.fleet.remove(ctx, id)
}

// inventory is the last list of a cluster's instances.
type inventory struct {
	listing chan struct{} // held by who lists
	at      time.Time
	byID    map[string]provider.Instance
}

// listed returns an instance as the cluster's last list has it, which is not
// older than the interval.
func (b *Backend) listed(ctx context.Context, clusterKey, id string) (instance provider.Instance, ok bool, err error) {
	b.mu.Lock()
	l := b.lists[clusterKey]
	if l == nil {
		l = &inventory{listing: make(chan struct{}, 1)}
		b.lists[clusterKey] = l
	}
	b.mu.Unlock()
	select {
	case l.listing <- struct{}{}:
		defer func() { <-l.listing }()
	case <-ctx.Done():
		return instance, false, fmt.Errorf("%w: %w", provider.ErrUnavailable, ctx.Err())
	}
	if now := b.options.Now(); l.at.IsZero() || now.Sub(l.at) >= b.options.Interval {
		list, err := b.fleet.list(ctx, map[string]string{provider.TagCluster: clusterKey})
		if err != nil {
			return instance, false, err
		}
		l.at, l.byID = now, map[string]provider.Instance{}
		for _, i := range list {
			l.byID[i.ID] = i
		}
	}
	instance, ok = l.byID[id]
	return instance, ok, nil
}
