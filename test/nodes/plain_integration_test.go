// SPDX-License-Identifier: Apache-2.0

//go:build integration

package nodes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// plainNodes are Node objects without a machine: the test renews their leases and
// says how they are, as their kubelets would. Nothing of the cluster can tell.
type plainNodes struct {
	l  *lab
	mu sync.Mutex
	// there are their names.
	there map[string]bool
}

func newPlainNodes(l *lab) *plainNodes {
	p := &plainNodes{l: l, there: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); p.beat(ctx) }()
	l.Cleanup(func() { cancel(); <-ended })
	return p
}

// add makes one that waits for its cloud, if it has no providerID yet.
func (l *lab) add(name, providerID string) {
	l.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	if providerID == "" {
		n.Spec.Taints = []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	}
	_, err := l.client.CoreV1().Nodes().Create(l.Context(), n, metav1.CreateOptions{})
	l.must(err)
	l.ready(name, corev1.ConditionTrue)
	l.plain.mu.Lock()
	defer l.plain.mu.Unlock()
	l.plain.there[name] = true
}

// ready says how a Node is.
func (l *lab) ready(name string, status corev1.ConditionStatus) {
	l.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Test","message":"","lastHeartbeatTime":%[2]q,"lastTransitionTime":%[2]q}]}}`, status, now)
	_, err := l.client.CoreV1().Nodes().Patch(l.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	l.must(err)
}

// beat renews all leases each second. What fails is tried again, and seen by what
// the test waits for.
func (p *plainNodes) beat(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		p.mu.Lock()
		names := slices.Collect(maps.Keys(p.there))
		p.mu.Unlock()
		for _, name := range names {
			p.renew(ctx, name)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *plainNodes) renew(ctx context.Context, name string) {
	leases := p.l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	seconds, now := int32(40), metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now}
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
		return
	}
	lease.Spec = spec
	leases.Update(ctx, lease, metav1.UpdateOptions{})
}
