// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/provider"
)

// BenchmarkIdlePool is the share of a processor that a pool takes in which 1,000 VMs wait
// and to which nobody comes: in each [poolPeriod] it is reconciled and swept once.
func BenchmarkIdlePool(b *testing.B) {
	const vms = 1000
	s := newPoolStand(b, v1alpha1.PodVMPoolSpec{MinReady: vms})
	pool := s.pool()
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pool)}
	s.check(s.pools.Reconcile(b.Context(), request)) // it gets its finalizer
	var list []provider.Instance
	var peerPods []v1alpha1.PeerPod
	c, err := s.r.clouds.Get("")
	if err != nil {
		b.Fatal(err)
	}
	node, key, err := s.pools.nodeCertificate(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for range vms {
		pp := claims.NewPoolVM(pool, claims.Claim{Provider: "fake", Cluster: "c1", Namespace: "system"}, templateOf(pool, c, node, key), string(node))
		claims.Created(v1alpha1.Instance{ID: "i-" + pp.Name, Addresses: []string{"198.18.0.1"}})(pp)
		claims.Ready(pp)
		peerPods = append(peerPods, *pp)
		list = append(list, provider.Instance{ID: "i-" + pp.Name, Key: pp.Spec.SandboxID, Tags: map[string]string{provider.TagCluster: "c1", provider.TagNamespace: "system"}})
	}
	s.list = list
	s.r.cached = copyingCache{s.client, peerPods}
	before, rounds := processorTime(b), 0
	for b.Loop() {
		rounds++
		if _, err := s.pools.Reconcile(b.Context(), request); err != nil {
			b.Fatal(err)
		}
		if err := s.sweeper.Sweep(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	if st := s.pool().Status; st.Ready != vms {
		b.Errorf("status %+v", st)
	}
	b.ReportMetric(100*float64(processorTime(b)-before)/float64(rounds)/float64(poolPeriod), "%-of-a-processor")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// copyingCache is a cache of PeerPods that copies what it returns, as the real one does.
type copyingCache struct {
	client.Reader
	pods []v1alpha1.PeerPod
}

func (c copyingCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	to, ok := list.(*v1alpha1.PeerPodList)
	if !ok {
		return c.Reader.List(ctx, list, options...)
	}
	for i := range c.pods {
		to.Items = append(to.Items, *c.pods[i].DeepCopy())
	}
	return nil
}
