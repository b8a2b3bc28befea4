// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

// BenchmarkSweep compares n instances with n PeerPods of the cache, none of
// which differ: the steady state.
func BenchmarkSweep(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			list, pods := many(n)
			s := newBenchStand(b, list, pods)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.sweeper.Sweep(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func many(n int) ([]provider.Instance, []v1alpha1.PeerPod) {
	list, pods := make([]provider.Instance, n), make([]v1alpha1.PeerPod, n)
	for i := range n {
		key := fmt.Sprintf("sandbox-%d", i)
		list[i] = provider.Instance{ID: "i-" + key, Key: key, Tags: map[string]string{provider.TagCluster: "c1"}, Created: time.Unix(0, 0)}
		pp := claims.New(claims.Claim{Provider: "fake", SandboxID: key, Cluster: "c1", Namespace: "ns", PodName: "web", Node: "worker"})
		claims.Created(v1alpha1.Instance{ID: "i-" + key})(pp)
		claims.Ready(pp)
		pods[i] = *pp
	}
	return list, pods
}

// fixedList is a provider that lists always the same.
type fixedList struct {
	provider.Provider
	list []provider.Instance
}

func (f fixedList) ListInstances(context.Context, map[string]string) ([]provider.Instance, error) {
	return f.list, nil
}

func (f fixedList) Teardown() error { return nil }

// fixedCache is a cache that returns objects without copying, as UnsafeDisableDeepCopy
// makes the real one.
type fixedCache struct {
	client.Reader
	pods []v1alpha1.PeerPod
}

func (f fixedCache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.PeerPodList).Items = f.pods
	return nil
}

func newBenchStand(b *testing.B, list []provider.Instance, pods []v1alpha1.PeerPod) *stand {
	b.Helper()
	s := newStand(b, func(c *fake.Cloud) provider.Provider { return fixedList{c, list} })
	s.sweeper.cached = fixedCache{s.client, pods}
	return s
}
