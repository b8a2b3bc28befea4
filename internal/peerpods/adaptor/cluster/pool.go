// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/kubeapi"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/provider"
)

// poolsAge is how old the list of pools may be when a pod starts. Most clusters have no
// pool, and none of their pods is to wait for that.
const poolsAge = 5 * time.Second

// reasonPoolEmpty: a pool fits the pod and no VM waits in it.
const reasonPoolEmpty = "PoolEmpty"

// reasonVMGivenUp: a VM of a pool did not take the pod.
const reasonVMGivenUp = "PoolVMGivenUp"

// labelZone is the well-known label of a Node's zone. Kubernetes' package with its name is large.
const labelZone = "topology.kubernetes.io/zone"

// mostMisses is after how many candidates that others had the VMs are listed again.
const mostMisses = 2

// pools is what this node knows of the pools.
type pools struct {
	mu      sync.Mutex
	read    time.Time
	list    []v1alpha1.PodVMPool
	node    tls.Certificate
	zone    string // of the node; empty if it has no label
	failed  error
	waiting map[string]candidates // by name of the pool
}

// candidates are VMs of a pool that waited when they were listed.
type candidates struct {
	list     []*v1alpha1.PeerPod
	template string
	read     time.Time
	misses   int
}

// TakeVM implements [adaptor.Cluster].
func (c *Cluster) TakeVM(ctx context.Context, rec adaptor.Record) (*adaptor.PoolVM, error) {
	if c.opts.Namespace == "" || !c.claims.has(rec.ID) { // a VM is taken for a PeerPod
		return nil, nil
	}
	ctx, cancel := c.withClaimTimeout(ctx)
	defer cancel()
	list, node, err := c.pools.refresh(ctx, c)
	if err != nil {
		return nil, err
	}
	fitting, err := c.fitting(ctx, list, &rec)
	if err != nil {
		return nil, err
	}
	for _, pool := range fitting {
		vm, err := c.takeOf(ctx, pool, &rec)
		if vm != nil {
			vm.Node = node
		}
		if vm != nil || err != nil {
			return vm, c.noteReachable(err)
		}
	}
	if len(fitting) > 0 {
		c.events.emit(&rec, normal, reasonPoolEmpty, fmt.Sprintf("no VM waits in pool %s: one is made for this pod", fitting[0].Name))
	}
	return nil, nil
}

// refresh returns the pools and how this node proves who it is to their VMs.
func (p *pools) refresh(ctx context.Context, c *Cluster) ([]v1alpha1.PodVMPool, tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := c.opts.Now(); now.Sub(p.read) >= poolsAge || now.Before(p.read) {
		p.list, p.failed = c.claims.api.Pools(ctx)
		if apierrors.IsNotFound(p.failed) { // no such resource: pools were never installed
			p.list, p.failed = nil, nil
		}
		if p.failed == nil && len(p.list) > 0 {
			p.node, p.failed = c.poolIdentity(ctx)
		}
		if p.failed == nil && len(p.list) > 0 {
			p.failed = p.selectNode(ctx, c)
		}
		p.read = now
	}
	return p.list, p.node, c.noteReachable(p.failed)
}

// selectNode leaves the pools of which this node's pods may take VMs, and notes the node's zone.
func (p *pools) selectNode(ctx context.Context, c *Cluster) error {
	var node metav1.PartialObjectMetadata
	if err := c.api.Get(ctx, kubeapi.Path(kubeapi.Core, "", "nodes", c.opts.NodeName), &node); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("labels of node %s: %w", c.opts.NodeName, err)
	}
	p.zone = node.Labels[labelZone]
	p.list = slices.DeleteFunc(p.list, func(pool v1alpha1.PodVMPool) bool { return !provider.HasTags(node.Labels, pool.Spec.NodeSelector) })
	return nil
}

func (c *Cluster) poolIdentity(ctx context.Context) (tls.Certificate, error) {
	var of secret
	if err := c.api.Get(ctx, kubeapi.Path(kubeapi.Core, c.opts.Namespace, "secrets", claims.PoolSecret), &of); err != nil {
		return tls.Certificate{}, fmt.Errorf("read Secret %s/%s, which peerpod-ctrl writes: %w", c.opts.Namespace, claims.PoolSecret, err)
	}
	pair, err := tls.X509KeyPair(of.Data["tls.crt"], of.Data["tls.key"])
	if err != nil {
		return pair, fmt.Errorf("read Secret %s/%s: %w", c.opts.Namespace, claims.PoolSecret, err)
	}
	return pair, nil
}

// fitting returns the pools whose VMs the sandbox may have, the smallest first.
func (c *Cluster) fitting(ctx context.Context, list []v1alpha1.PodVMPool, rec *adaptor.Record) ([]*v1alpha1.PodVMPool, error) {
	var labels map[string]string
	var fitting []*v1alpha1.PodVMPool
	for i := range list {
		pool := &list[i]
		of, size := provider.Canonical(pool.Spec.CloudProvider), claims.VMSpec(&pool.Spec)
		if pool.DeletionTimestamp != nil || of != "" && of != c.opts.Provider || !adaptor.Fits(&size, &rec.Spec) {
			continue
		}
		if len(pool.Spec.PodSelector) > 0 && labels == nil {
			of, err := c.lookup(ctx, rec.PodNamespace, rec.PodName)
			if err != nil {
				return nil, fmt.Errorf("labels of the pod: %w", err)
			}
			labels = map[string]string{}
			maps.Copy(labels, of.Metadata.Labels)
		}
		if provider.HasTags(labels, pool.Spec.PodSelector) {
			fitting = append(fitting, pool)
		}
	}
	slices.SortFunc(fitting, func(a, b *v1alpha1.PodVMPool) int {
		return cmp.Or(cmp.Compare(a.Spec.MemoryMiB, b.Spec.MemoryMiB), cmp.Compare(a.Spec.VCPUs, b.Spec.VCPUs), cmp.Compare(a.Name, b.Name))
	})
	return fitting, nil
}

// takeOf takes a VM of one pool; nil when none waits.
func (c *Cluster) takeOf(ctx context.Context, pool *v1alpha1.PodVMPool, rec *adaptor.Record) (*adaptor.PoolVM, error) {
	of := claimOf(rec, &c.opts)
	for {
		pp, err := c.pools.candidate(ctx, c, pool, rec.Spec.Zone)
		if pp == nil || err != nil {
			return nil, err
		}
		taken, err := c.claims.peerPods.Take(ctx, pp, of, c.opts.Now())
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
			c.pools.missed(pool) // somebody else has it, or it is being deleted
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("take a VM of pool %s: %w", pool.Name, err)
		}
		return c.taken(ctx, taken, rec)
	}
}

// candidate returns a VM of the pool that waited when it was listed and that no other pod
// of this node tries, in the node's zone if there is one; nil when there is none. Pods that come together share a list: to
// list for each of them takes longer than all the rest. Nodes try the VMs in an order of
// their own, so that few try the same. A pod that asks for a zone gets none of another.
func (p *pools) candidate(ctx context.Context, c *Cluster, pool *v1alpha1.PodVMPool, zone string) (*v1alpha1.PeerPod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.waiting[pool.Name]
	if now := c.opts.Now(); len(of.list) == 0 || of.template != pool.Status.Template || of.misses >= mostMisses || now.Sub(of.read) >= poolsAge {
		list, err := c.claims.api.OfPool(ctx, c.opts.Namespace, pool.Name)
		if err != nil {
			return nil, fmt.Errorf("list the VMs of pool %s: %w", pool.Name, err)
		}
		of = candidates{read: now, template: pool.Status.Template}
		for _, i := range rand.Perm(len(list)) {
			if pp := &list[i]; claims.Waits(pp) && pp.Spec.Pool.Template == of.template && provider.Canonical(pp.Spec.CloudProvider) == c.opts.Provider {
				of.list = append(of.list, pp)
			}
		}
		slices.SortStableFunc(of.list, func(a, b *v1alpha1.PeerPod) int { return cmp.Compare(p.distance(a), p.distance(b)) })
	}
	var first *v1alpha1.PeerPod
	if i := slices.IndexFunc(of.list, func(pp *v1alpha1.PeerPod) bool { return zone == "" || zoneOf(pp) == zone }); i >= 0 {
		first = of.list[i]
		of.list = slices.Delete(of.list, i, i+1)
	}
	p.waiting[pool.Name] = of
	return first, nil
}

// distance is 0 for a VM in the node's zone: traffic of its pod stays there.
func (p *pools) distance(pp *v1alpha1.PeerPod) int {
	if zoneOf(pp) == p.zone {
		return 0
	}
	return 1
}

// zoneOf returns where a VM is; empty if its provider does not say.
func zoneOf(pp *v1alpha1.PeerPod) string {
	if pp.Status.Instance == nil {
		return ""
	}
	return pp.Status.Instance.Zone
}

// missed notes that a candidate of the pool could not be taken.
func (p *pools) missed(pool *v1alpha1.PodVMPool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.waiting[pool.Name]
	of.misses++
	p.waiting[pool.Name] = of
}

// taken writes into the pod's PeerPod which VM it has. Without that the controller would
// delete the VM under the pod, so that it is given up then.
func (c *Cluster) taken(ctx context.Context, pp *v1alpha1.PeerPod, rec *adaptor.Record) (*adaptor.PoolVM, error) {
	name := pp.Namespace + "/" + pp.Name
	if err := c.claims.tookFrom(ctx, rec.ID, name); err != nil {
		rec.PoolVM = name
		return nil, fmt.Errorf("note VM %s of pool %s: %w", name, pp.Spec.Pool.Name, cmp.Or(c.claims.dropVM(ctx, rec), err))
	}
	vm := &adaptor.PoolVM{Name: name, ServerName: pp.Name, Authority: pp.Spec.Pool.Authority, Stopped: pp.Spec.Pool.Standby == v1alpha1.StandbyStopped}
	if of := pp.Status.Instance; of != nil {
		vm.Instance = provider.Instance{ID: of.ID, Name: of.Name, Type: of.Type, Zone: of.Zone}
		for _, text := range of.Addresses {
			addr, _ := netip.ParseAddr(text) // an invalid one is refused before it is used
			vm.Instance.IPs = append(vm.Instance.IPs, addr)
		}
	}
	return vm, nil
}

// has reports whether a sandbox has a PeerPod.
func (c *tracker) has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.known[id]
	if cl == nil {
		return false
	}
	select {
	case <-cl.created:
		return !cl.released
	default:
		return false
	}
}

// tookFrom notes in the PeerPod of a sandbox that its instance is that of a pool.
func (c *tracker) tookFrom(ctx context.Context, id, poolVM string) error {
	unlock, err := c.writing.Take(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	c.mu.Lock()
	cl := c.known[id]
	c.mu.Unlock()
	if cl == nil || cl.pp == nil {
		return fmt.Errorf("the sandbox has no PeerPod yet: %w", provider.ErrUnavailable)
	}
	pp, err := c.peerPods.Update(ctx, cl.pp, claims.TookFrom(poolVM))
	if err != nil {
		return err
	}
	cl.pp = pp
	c.mu.Lock()
	defer c.mu.Unlock()
	cl.rec.PoolVM = poolVM // for a write that is waiting already
	return nil
}

// DropVM implements [adaptor.Cluster].
func (c *Cluster) DropVM(ctx context.Context, rec adaptor.Record, why error) error {
	c.events.warn(&rec, reasonVMGivenUp, "VM "+rec.PoolVM+" of a pool did not take the pod, another one is made: "+claims.Cut(why.Error(), maxMessage/2))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	return c.noteReachable(c.claims.dropVM(ctx, &rec))
}

// dropVM deletes the PeerPod of the VM that the sandbox took from a pool, if any, and with
// it the VM.
func (c *tracker) dropVM(ctx context.Context, rec *adaptor.Record) error {
	namespace, name, ok := strings.Cut(rec.PoolVM, "/")
	if !ok {
		return nil
	}
	pp, err := c.api.Get(ctx, namespace, name)
	if err == nil {
		if by := pp.Spec.Pool; by == nil || by.Claim == nil || by.Claim.Namespace != rec.PodNamespace || by.Claim.Name != claims.Name(rec.PodName, rec.ID) {
			return nil // not this sandbox's
		}
		err = c.api.Delete(ctx, namespace, name, pp.UID)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete PeerPod %s of a VM that a pool had: %w", rec.PoolVM, err)
	}
	return nil
}
