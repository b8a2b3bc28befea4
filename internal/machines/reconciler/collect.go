// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

	orphanSince map[string]time.Time // since when a resource is an orphan, by id
	// reported holds the orphans whose removal was reported in an Event. A cloud may
	// list them for a long time, and each pass removes them again.
	reported map[string]bool
}

// NeedLeaderElection returns true: only one of several managers collects.
func (*Collector) NeedLeaderElection() bool { return true }

// Start collects until ctx ends.
func (c *Collector) Start(ctx context.Context) error {
	c.complete()
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
	c.complete()
	if c.Grace == 0 {
		c.Grace = 5 * time.Minute
	}
	clusters := c.NewClusters()
	if err := c.Reader.List(ctx, clusters, client.InNamespace(c.Namespace)); err != nil {
		return fmt.Errorf("list clusters: %w", err)
	}
	before, reportedBefore := c.orphanSince, c.reported
	c.orphanSince, c.reported = map[string]time.Time{}, map[string]bool{}
	var errs []error
	err := apimeta.EachListItem(clusters, func(o runtime.Object) error {
		errs = append(errs, c.collect(ctx, o.(InfraCluster), before, reportedBefore))
		return nil
	})
	err = errors.Join(append(errs, err)...)
	if err != nil {
		maps.Copy(c.reported, reportedBefore) // not everything was checked
	}
	return err
}

func (c *Collector) collect(ctx context.Context, infra InfraCluster, before map[string]time.Time, reportedBefore map[string]bool) error {
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
		if keys[o.Key] {
			continue
		}
		if reportedBefore[o.ID] {
			c.reported[o.ID] = true
		}
		errs = append(errs, c.orphan(ctx, scope, o, before))
	}
	return errors.Join(errs...)
}

// keys returns the keys of all machines of a namespace.
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

// orphan removes a resource that has been without a machine for the grace
// period.
func (c *Collector) orphan(ctx context.Context, of *ClusterScope, o Owned, before map[string]time.Time) error {
	since, ok := before[o.ID]
	if !ok {
		since = c.Now()
	}
	c.orphanSince[o.ID] = since
	if now := c.Now(); now.Sub(since) < c.Grace || now.Sub(o.Created) < c.Grace {
		return nil
	}
	if err := c.Inventory.Remove(ctx, of, o.ID); err != nil {
		return fmt.Errorf("remove %s, which lost its machine: %w", o.ID, err)
	}
	delete(c.orphanSince, o.ID)
	if c.reported[o.ID] {
		return nil
	}
	c.reported[o.ID] = true
	c.emit(of.Infra, corev1.EventTypeWarning, "OrphanRemoved", "Collect", fmt.Sprintf("%s carried the key %s, which no machine of the namespace has: removed", o.ID, o.Key))
	return nil
}
