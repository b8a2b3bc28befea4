// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"maps"
	"time"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// resyncFactor is how many times the node is checked for each check of the
// PeerPods.
const resyncFactor = 10

// resync periodically checks that PeerPods are still as they were written: they
// can be edited by hand, restored from a backup, or lost.
func (c *tracker) resync(ctx context.Context) {
	for poll.Sleep(ctx, c.cluster.opts.Resync*resyncFactor) == nil {
		c.resyncOnce(ctx)
	}
}

func (c *tracker) resyncOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	began := time.Now()
	list, err := c.api.OfNode(ctx, c.cluster.opts.NodeName)
	if c.cluster.noteReachable(err) != nil {
		return
	}
	there := map[string]*v1alpha1.PeerPod{}
	for i := range list {
		there[list[i].Spec.SandboxID] = &list[i]
	}
	c.mu.Lock()
	known := maps.Clone(c.known)
	maps.DeleteFunc(known, func(_ string, one *claim) bool { return one.released || one.outdated })
	c.mu.Unlock()
	for id, one := range known {
		c.compare(ctx, id, one, there[id], began)
	}
}

// compare enqueues a PeerPod that differs from the one last seen. One that is
// being deleted stays so: the controller removes its instance.
func (c *tracker) compare(ctx context.Context, id string, one *claim, now *v1alpha1.PeerPod, listed time.Time) {
	done, err := c.writing.Take(ctx, id)
	if err != nil {
		return
	}
	defer done()
	switch {
	case one.pp == nil:
		return
	case now == nil && one.pp.CreationTimestamp.Add(requestTimeout).After(listed):
		return // the list may be older than the PeerPod
	case now == nil:
		one.pp = nil
	case now.ResourceVersion == one.pp.ResourceVersion || now.DeletionTimestamp != nil:
		return
	default:
		one.pp = now
	}
	c.queue.Add(id)
}
