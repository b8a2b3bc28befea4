// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/provider"
)

// Reasons why a Node whose instance was not found is not deleted.
const (
	// HeldSecondLook: only one check so far.
	HeldSecondLook = "SecondLookDue"
	// HeldContradiction: the list has the instance.
	HeldContradiction = "CloudContradictsItself"
	// HeldNoList: instances cannot be listed or asked for.
	HeldNoList = "InventoryUnreadable"
	// HeldEmpty: the list has no instance of any other Node either.
	HeldEmpty = "InventoryShowsNoNode"
)

// InstanceExists returns false, upon which the Node is deleted, only when
//
//   - the Node has a providerID, and it is of this provider;
//   - the cloud has answered that there is no such instance in two looks, GoneAfter
//     apart at least, with no other answer in between;
//   - its list, asked for after the first of them, does not have it either;
//   - the list has the instance of another Node of the cluster (in the region
//     that the providerID names). An empty inventory, or one that is somebody
//     else's, proves nothing, unless EmptyAfter says after what time it does.
//
// What is not proven is an error. Nodes of other clouds, and those that never
// had an instance, are never said to be gone.
func (c *Cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	ref, ours := parse(c.options.Name, node.Spec.ProviderID)
	if !ours {
		return true, nil
	}
	instance, err := c.fleet.look(ctx, ref.id)
	if unknown(err) {
		return true, nil
	}
	if errors.Is(err, provider.ErrNotFound) {
		return c.missing(ctx, node, ref, err)
	}
	c.present(ref.id) // or unknown: the series begins again
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
	ref, ours := parse(c.options.Name, node.Spec.ProviderID)
	if !ours {
		return false, nil
	}
	instance, err := c.fleet.look(ctx, ref.id)
	if unknown(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return instance.State == provider.StateStopped || instance.State == provider.StateDeleting, nil
}

// missing checks an instance again that the cloud does not find, and returns
// false if that is proof.
func (c *Cloud) missing(ctx context.Context, node *v1.Node, ref reference, cause error) (exists bool, err error) {
	now := c.options.Now()
	list, err := c.second(ctx)
	switch {
	case err != nil:
		c.present(ref.id)
		return true, c.refuseDeletion(node, HeldNoList, fmt.Errorf("%w, but the instances cannot be listed to confirm it: %w", cause, err))
	case list.byID[ref.id] != nil:
		c.present(ref.id)
		return true, c.refuseDeletion(node, HeldContradiction, fmt.Errorf("%w, but it is in the list of instances", cause))
	}
	since := c.absentSince(ref.id, now)
	age := now.Sub(since)
	switch {
	case !c.witnessed(node, ref, list) && (c.options.EmptyAfter == 0 || age < c.options.EmptyAfter):
		return true, c.refuseDeletion(node, HeldEmpty, fmt.Errorf("%w, but of its %d instances none is that of another Node, so that the inventory may be empty or another's: check the provider's settings; delete the Node by hand if it is gone, or see --trust-empty-inventory-after", cause, len(list.byID)))
	case age < c.options.GoneAfter || list.at.Before(since):
		return true, c.refuseDeletion(node, HeldSecondLook, fmt.Errorf("%w; it will be checked again", cause))
	}
	c.forget(node)
	return false, nil
}

// second returns a recent list.
func (c *Cloud) second(ctx context.Context) (*inventory, error) {
	if err := c.learnClusterTags(ctx); err != nil {
		return nil, err
	}
	return c.fleet.recent(ctx)
}

// witnessed reports whether the list has the instance of another Node.
func (c *Cloud) witnessed(node *v1.Node, ref reference, list *inventory) bool {
	for _, other := range c.others(node) {
		known, ours := parse(c.options.Name, other.Spec.ProviderID)
		if !ours || known.id == ref.id {
			continue
		}
		i := list.byID[known.id]
		if i != nil && i.State != provider.StateDeleting && (ref.region == "" || ref.region == i.Region) {
			return true
		}
	}
	return false
}

// absence is a series of checks that did not find an instance.
type absence struct{ since, last time.Time }

// absentSince records that an instance was not found and returns since when. A
// series also ends after a long time without checks: the Node was Ready meanwhile,
// or is gone. A pass over all absent Nodes takes as long as the cloud does.
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
	if !ok || a.last.After(now) { // or the clock was put back
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
