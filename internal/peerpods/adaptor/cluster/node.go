// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/internal/kubeapi"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// resourceName is what a pod VM counts as on its node.
	resourceName = "kata.peerpods.io/vm"
	// ownerAnnotation names the adaptor, by its pod's UID, that advertises it.
	ownerAnnotation = "kata.peerpods.io/caa-owner"
	// withdrawWait bounds the last request of a process that ends.
	withdrawWait = 3 * time.Second
)

// nodeResource advertises how many pod VMs the node may have. In a rolling
// update the next adaptor may advertise before this one withdraws, so whoever
// advertises says so in an annotation, and only the one named there withdraws.
type nodeResource struct {
	cluster   *Cluster
	complaint string
}

// run keeps the resource on the node until ctx ends. A kubelet that registers
// its node again drops it, so it is checked periodically.
func (n *nodeResource) run(ctx context.Context) {
	if n.cluster.opts.Limit < 0 {
		<-ctx.Done()
		return
	}
	wait := n.cluster.opts.MinRetry
	for {
		if err := n.advertise(ctx); err != nil {
			if !unreachable(err) && err.Error() != n.complaint {
				n.complaint = err.Error()
				n.cluster.opts.Log.Warn("the node does not advertise "+resourceName+"; it is tried again", "node", n.cluster.opts.NodeName, "error", err)
			}
			wait = min(2*wait, n.cluster.opts.MaxRetry)
		} else {
			n.complaint, wait = "", n.cluster.opts.Resync
		}
		if poll.Sleep(ctx, wait) != nil {
			break
		}
		if wait == n.cluster.opts.Resync {
			wait = n.cluster.opts.MinRetry
		}
	}
	n.withdraw()
}

// advertise patches the node only if it differs.
func (n *nodeResource) advertise(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	o := &n.cluster.opts
	var now node
	if err := n.cluster.noteReachable(n.cluster.api.Get(ctx, kubeapi.Path(kubeapi.Core, "", "nodes", o.NodeName), &now)); err != nil {
		return fmt.Errorf("read the node: %w", err)
	}
	limit := strconv.Itoa(o.Limit)
	if now.Status.Capacity[resourceName] == limit && now.Metadata.Annotations[ownerAnnotation] == o.Owner {
		return nil
	}
	err := n.cluster.noteReachable(n.cluster.api.Patch(ctx, kubeapi.Path(kubeapi.Core, "", "nodes", o.NodeName, "status"), map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{ownerAnnotation: o.Owner}},
		"status":   map[string]any{"capacity": map[string]string{resourceName: limit}},
	}))
	if err != nil {
		return fmt.Errorf("advertise on the node: %w", err)
	}
	o.Log.Info("the node advertises "+resourceName, "node", o.NodeName, "limit", limit)
	return nil
}

// withdraw takes the resource off if it is still ours. The test and the
// removal are one request, so an adaptor that takes over in between keeps it.
func (n *nodeResource) withdraw() {
	ctx, cancel := context.WithTimeout(context.Background(), withdrawWait)
	defer cancel()
	o := &n.cluster.opts
	owner := kubeapi.Pointer("metadata", "annotations", ownerAnnotation)
	err := n.cluster.api.Patch(ctx, kubeapi.Path(kubeapi.Core, "", "nodes", o.NodeName, "status"), []kubeapi.Operation{
		{Op: "test", Path: owner, Value: o.Owner},
		{Op: "remove", Path: kubeapi.Pointer("status", "capacity", resourceName)},
		{Op: "remove", Path: owner},
	})
	switch {
	case err == nil:
		o.Log.Info("the node does not advertise "+resourceName+" any more", "node", o.NodeName)
	case apierrors.IsInvalid(err), apierrors.IsNotFound(err):
		o.Log.Info("another adaptor advertises "+resourceName, "node", o.NodeName)
	default:
		o.Log.Warn("the node may go on advertising "+resourceName, "node", o.NodeName, "error", err)
	}
}
