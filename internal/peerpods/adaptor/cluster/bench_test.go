// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/provider"
)

// BenchmarkTakeVM has 200 pods on 20 nodes come within a second to a pool in which 200 VMs
// wait. Each has to get one. The API server is in memory, and spoken to by HTTP.
func BenchmarkTakeVM(b *testing.B) { benchmarkTakeVM(b, newFakeAPI(b).serve()) }

func benchmarkTakeVM(b *testing.B, config *rest.Config) {
	const nodes, pods = 20, 200
	var list []*Cluster
	for i := range nodes {
		list = append(list, runNode(b, config, fmt.Sprint("bench-", i)))
	}
	pool, round := benchPool(b, config), 0
	for b.Loop() {
		b.StopTimer()
		round++
		benchFill(b, config, pool, pods)
		recs := make([]adaptor.Record, pods)
		var claimed sync.WaitGroup
		for i := range recs {
			name := fmt.Sprintf("take-%d-%d", round, i)
			recs[i] = adaptor.Record{ID: name + "-sandbox", PodName: name, PodNamespace: namespace, Spec: provider.InstanceTypeSpec{Arch: runtime.GOARCH}}
			claimed.Go(func() { list[i%nodes].Claim(b.Context(), recs[i]) })
		}
		claimed.Wait()
		b.StartTimer()
		took := takeAll(b, list, recs)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
	}
}

// takeAll takes a VM for each sandbox, all of them within a second, and returns how long
// each took, the shortest first.
func takeAll(b *testing.B, nodes []*Cluster, recs []adaptor.Record) []time.Duration {
	took, users := make([]time.Duration, len(recs)), sync.Map{}
	ticker := time.NewTicker(time.Second / time.Duration(len(recs)))
	defer ticker.Stop()
	var all sync.WaitGroup
	for i := range recs {
		<-ticker.C
		all.Go(func() {
			began := time.Now()
			vm, err := nodes[i%len(nodes)].TakeVM(b.Context(), recs[i])
			took[i] = time.Since(began)
			if err != nil || vm == nil {
				b.Errorf("%s has no VM: %v", recs[i].PodName, err)
			} else if other, taken := users.LoadOrStore(vm.Name, i); taken {
				b.Errorf("pods %d and %d have VM %s", other, i, vm.Name)
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}

func runNode(b *testing.B, config *rest.Config, name string) *Cluster {
	b.Helper()
	c, err := New(Options{Config: config, NodeName: name, Owner: name, Namespace: poolNamespace, Provider: "fake", ClusterID: "here", Limit: -1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	return c
}

// benchPool makes a pool as the controller has it, and what nodes prove themselves with.
func benchPool(b *testing.B, admin *rest.Config) *v1alpha1.PodVMPool {
	b.Helper()
	bundle, err := podtls.NewBundle("nodes", time.Now())
	if err != nil {
		b.Fatal(err)
	}
	raw(b, admin, "POST", "/api/v1/namespaces/"+poolNamespace+"/secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": map[string]any{"name": claims.PoolSecret, "namespace": poolNamespace},
		"data": map[string][]byte{corev1.TLSCertKey: bundle.ClientCertPEM, corev1.TLSPrivateKeyKey: bundle.ClientKeyPEM},
	}, nil)
	pool := &v1alpha1.PodVMPool{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodVMPool"}, ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Spec: v1alpha1.PodVMPoolSpec{MinReady: 200, Arch: runtime.GOARCH},
	}
	path := "/apis/" + v1alpha1.GroupVersion.String() + "/podvmpools"
	raw(b, admin, "POST", path, pool, pool)
	pool.Status.Template = "t1"
	raw(b, admin, "PATCH", path+"/bench/status", map[string]any{"status": map[string]any{"template": "t1"}}, pool)
	return pool
}

// benchFill makes VMs that wait.
func benchFill(b *testing.B, admin *rest.Config, pool *v1alpha1.PodVMPool, n int) {
	b.Helper()
	config := rest.CopyConfig(admin)
	config.QPS = -1
	api, err := claims.NewREST(config)
	if err != nil {
		b.Fatal(err)
	}
	bundle, err := podtls.NewBundle("vm", time.Now()) // as long as each VM's own
	if err != nil {
		b.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			pp, err := api.Create(b.Context(), claims.NewPoolVM(pool, claims.Claim{Provider: "fake", Cluster: "here", Namespace: poolNamespace}, "t1", string(bundle.CAPEM)))
			if err == nil {
				about := v1alpha1.Instance{ID: "i-" + pp.Name, Name: pp.Name, Type: "fake.small", Zone: "a", Addresses: []string{fmt.Sprintf("198.18.0.%d", i)}}
				_, err = (&claims.Claims{API: api}).Update(b.Context(), pp, claims.Created(about), claims.Ready)
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
}
