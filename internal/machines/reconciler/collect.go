// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Inventory is a [MachineBackend] that can list its resources.
type Inventory interface {
	// Owned returns all resources with the key of a cluster that are not being
	// deleted.
	Owned(context.Context, *ClusterScope) ([]Owned, error)
	// Remove removes one resource.
	Remove(ctx context.Context, of *ClusterScope, id string) error
}

// Owned is a resource that was made for a machine.
type Owned struct {
	ID, Key string
	// Created is when it was made; zero when unknown.
	Created time.Time
}

// Collector removes orphans, resources whose machine is gone. They occur when somebody
// removes a finalizer while a resource is made, or when a second manager runs. It
// checks only clusters that exist and are not paused: a move creates the cluster
// before its machines.
type Collector struct {
	Base
	// Reader must not be a cache.
	Reader      client.Reader
	NewClusters func() client.ObjectList
	NewMachines func() client.ObjectList
	Inventory   Inventory
	// Namespace limits the check to clusters of one namespace; empty means all.
	Namespace string
	// Every is the interval. Grace is for how long a resource must have been without a
	// machine. Both are 5 minutes by default.
	Every, Grace time.Duration

	orphans map[string]orphan // of the last pass, by id
}

// orphan is a resource without a machine.
type orphan struct {
	// since is when it was seen first; zero once it was removed.
	since time.Time
	// removed says that a pass has removed it. A cloud may list it for a long time, and
	// each pass removes it again.
	removed bool
}

// NeedLeaderElection returns true: only one of several managers collects.
func (*Collector) NeedLeaderElection() bool { return true }

// Start collects until ctx ends.
func (c *Collector) Start(ctx context.Context) error {
	c.Complete()
	if c.Every == 0 {
		c.Every = 5 * time.Minute
	}
	ticker := time.NewTicker(c.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := c.Collect(ctx); err != nil {
				log.FromContext(ctx).Error(err, "collect orphans")
			}
		}
	}
}

// Collect makes one pass.
func (c *Collector) Collect(ctx context.Context) error {
	c.Complete()
	if c.Grace == 0 {
		c.Grace = 5 * time.Minute
	}
	clusters := c.NewClusters()
	if err := c.Reader.List(ctx, clusters, client.InNamespace(c.Namespace)); err != nil {
		return fmt.Errorf("list clusters: %w", err)
	}
	before := c.orphans
	c.orphans = map[string]orphan{}
	var errs []error
	err := apimeta.EachListItem(clusters, func(o runtime.Object) error {
		errs = append(errs, c.collect(ctx, o.(InfraCluster), before))
		return nil
	})
	err = errors.Join(append(errs, err)...)
	for id, o := range before {
		if _, seen := c.orphans[id]; err != nil && o.removed && !seen { // not everything was checked
			c.orphans[id] = orphan{removed: true}
		}
	}
	return err
}

func (c *Collector) collect(ctx context.Context, infra InfraCluster, before map[string]orphan) error {
	cluster, err := clusterNamed(ctx, c.Reader, infra.GetNamespace(), ownerCluster(infra))
	if err != nil || cluster == nil || c.foreign(infra) || isMoved(infra) || external(infra) || paused(cluster, infra) || !infra.GetDeletionTimestamp().IsZero() {
		return err
	}
	// List resources first, then objects: an object is written before anything
	// is made for it.
	scope := &ClusterScope{Cluster: cluster, Infra: infra, Key: keyOf(infra)}
	owned, err := c.Inventory.Owned(ctx, scope)
	if err != nil || len(owned) == 0 {
		return err
	}
	keys, err := c.keys(ctx, infra.GetNamespace())
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range owned {
		if !keys[o.Key] {
			errs = append(errs, c.remove(ctx, scope, o, before[o.ID]))
		}
	}
	return errors.Join(errs...)
}

func (c *Collector) keys(ctx context.Context, namespace string) (map[string]bool, error) {
	list := c.NewMachines()
	if err := c.Reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	keys := map[string]bool{}
	return keys, apimeta.EachListItem(list, func(o runtime.Object) error {
		keys[keyOf(o.(client.Object))] = true
		return nil
	})
}

// remove removes a resource that has been without a machine for the grace
// period.
func (c *Collector) remove(ctx context.Context, of *ClusterScope, o Owned, known orphan) error {
	now := c.Now()
	if known.since.IsZero() {
		known.since = now
	}
	c.orphans[o.ID] = known
	if now.Sub(known.since) < c.Grace || now.Sub(o.Created) < c.Grace {
		return nil
	}
	if err := c.Inventory.Remove(ctx, of, o.ID); err != nil {
		return fmt.Errorf("remove %s, which lost its machine: %w", o.ID, err)
	}
	c.orphans[o.ID] = orphan{removed: true}
	if known.removed {
		return nil
	}
	c.Events.Emit(of.Infra, nil, corev1.EventTypeWarning, "OrphanRemoved", "Collect", fmt.Sprintf("%s carried the key %s, which no machine of the namespace has: removed", o.ID, o.Key))
	return nil
}
