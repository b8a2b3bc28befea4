// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/providerid"
	"github.com/outrigger/outrigger/provider"
)

// Reasons why a Node is kept although its instance was not found.
const (
	// HeldSecondLook means that there was only one check so far.
	HeldSecondLook = "SecondLookDue"
	// HeldContradiction means that the list has the instance.
	HeldContradiction = "CloudContradictsItself"
	// HeldNoList means that instances cannot be listed or looked up.
	HeldNoList = "InventoryUnreadable"
	// HeldEmpty means that the list has no instance of any other Node either.
	HeldEmpty = "InventoryShowsNoNode"
)

// InstanceExists returns false, after which the Node is deleted, only if
//
//   - the Node has a providerID of this provider;
//   - the cloud has said in two checks, at least GoneAfter apart, that there is no such
//     instance, and nothing else in between;
//   - a list that was requested after the first of them does not have the instance;
//   - the list has the instance of another Node of the cluster, in the region that the
//     providerID names. An empty list, or that of another account, proves nothing
//     until EmptyAfter is over, if that is set.
//
// If that is not proven it returns an error. Nodes of other clouds, and Nodes without
// providerID, count as existing.
func (c *Cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	ref, ours := providerid.Parse(c.options.Name, node.Spec.ProviderID)
	if !ours {
		return true, nil
	}
	instance, err := c.fleet.lookUp(ctx, ref.ID)
	if foreignID(err) {
		return true, nil
	}
	if errors.Is(err, provider.ErrNotFound) {
		return c.confirmMissing(ctx, node, ref, err)
	}
	c.present(ref.ID) // also after an error: only checks in a row count
	if err != nil && ctx.Err() == nil {
		err = c.refuseDeletion(node, HeldNoList, err)
	}
	if err != nil {
		return true, err
	}
	c.fleet.learn(instance)
	return true, nil
}

// InstanceShutdown reports whether the instance is stopped.
func (c *Cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	ref, ours := providerid.Parse(c.options.Name, node.Spec.ProviderID)
	if !ours {
		return false, nil
	}
	instance, err := c.fleet.lookUp(ctx, ref.ID)
	if foreignID(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return instance.State == provider.StateStopped || instance.State == provider.StateDeleting, nil
}

// confirmMissing decides about an instance that the cloud does not find. It returns false if
// it is proven that the instance does not exist.
func (c *Cloud) confirmMissing(ctx context.Context, node *v1.Node, ref providerid.Reference, cause error) (exists bool, err error) {
	now := c.options.Now()
	var list *inventory
	if err = c.learnClusterTags(ctx); err == nil {
		list, err = c.fleet.recent(ctx)
	}
	switch {
	case err != nil:
		c.present(ref.ID)
		return true, c.refuseDeletion(node, HeldNoList, fmt.Errorf("%w, but the instances cannot be listed to confirm it: %w", cause, err))
	case list.byID[ref.ID] != nil:
		c.present(ref.ID)
		return true, c.refuseDeletion(node, HeldContradiction, fmt.Errorf("%w, but it is in the list of instances", cause))
	}
	since := c.absentSince(ref.ID, now)
	age := now.Sub(since)
	switch {
	case !c.listsOther(node, ref, list) && (c.options.EmptyAfter == 0 || age < c.options.EmptyAfter):
		return true, c.refuseDeletion(node, HeldEmpty, fmt.Errorf("%w, but of its %d instances none is that of another Node, so that the inventory may be empty or another's: check the provider's settings; delete the Node by hand if it is gone, or see --trust-empty-inventory-after", cause, len(list.byID)))
	case age < c.options.GoneAfter || list.at.Before(since):
		return true, c.refuseDeletion(node, HeldSecondLook, fmt.Errorf("%w; it will be checked again", cause))
	}
	c.forget(node)
	return false, nil
}

// listsOther reports whether the list has the instance of another Node, which proves
// that it is the list of this cluster.
func (c *Cloud) listsOther(node *v1.Node, ref providerid.Reference, list *inventory) bool {
	for _, other := range c.others(node) {
		known, ours := providerid.Parse(c.options.Name, other.Spec.ProviderID)
		if !ours || known.ID == ref.ID {
			continue
		}
		i := list.byID[known.ID]
		if i != nil && i.State != provider.StateDeleting && (ref.Region == "" || ref.Region == i.Region) {
			return true
		}
	}
	return false
}

// absence is a series of checks that did not find an instance.
type absence struct{ since, last time.Time }

// absentSince records that an instance was not found, and returns the time of the
// first check in a row that did not find it. A row also ends after a long time without
// checks: the Node was Ready meanwhile, or is gone. How long is derived from the time
// that a pass over all absent Nodes takes at this cloud.
func (c *Cloud) absentSince(id string, now time.Time) time.Time {
	list, get := c.fleet.slowness()
	c.mu.Lock()
	pass := c.options.Pass + list + time.Duration(len(c.absent)+1)*get
	longest := max(2*time.Minute, 4*c.options.GoneAfter, 4*pass)
	defer c.mu.Unlock()
	for other, a := range c.absent {
		if now.Sub(a.last) > longest {
			delete(c.absent, other)
		}
	}
	a, ok := c.absent[id]
	if !ok || a.last.After(now) { // last is in the future if the clock was set back
		a.since = now
	}
	a.last = now
	c.absent[id] = a
	return a.since
}

// present ends a series of checks that did not find an instance.
func (c *Cloud) present(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.absent, id)
}
