// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/adaptortest"
)

// TestFiftySandboxesLeaveNothing compares with the base line after warming up.
func TestFiftySandboxesLeaveNothing(t *testing.T) {
	s := newStand(t, nil)
	round := func(n int) {
		var work sync.WaitGroup
		for i := range n {
			work.Go(func() {
				id := fmt.Sprintf("s%d", i)
				s.create(id)
				if err := s.start(id); err != nil {
					t.Error(err)
				}
				s.stop(id)
			})
		}
		work.Wait()
		s.wantNothing()
	}
	round(5)
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	round(50)
	s.eventually("goroutines are back", func() bool { return runtime.NumGoroutine() <= goroutines })
	if now := openFiles(t); now > files {
		t.Errorf("%d open files, before %d", now, files)
	}
}

// TestIdleSandboxesAreCheap bounds memory and goroutines for each.
func TestIdleSandboxesAreCheap(t *testing.T) {
	const n, mostKiB = 200, 150
	s := newStand(t, nil)
	s.run("warm")
	goroutines, heap := runtime.NumGoroutine(), heapInUse()
	for i := range n {
		s.run(fmt.Sprintf("s%d", i))
	}
	s.eventually("no goroutine for idle sandboxes", func() bool { return runtime.NumGoroutine() <= goroutines })
	perSandbox := int64(heapInUse()-heap) / n / 1024
	t.Logf("%d KiB for each sandbox, the fake cloud's share included", perSandbox)
	if perSandbox > mostKiB {
		t.Errorf("%d KiB for each sandbox, want at most %d", perSandbox, mostKiB)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// BenchmarkStartVM measures our share of StartVM: the cloud, the network and
// the relay answer at once, the journal is on a real disk.
func BenchmarkStartVM(b *testing.B) {
	var known time.Time // when the provider told the address
	var took, toTunnel []time.Duration
	s := newStand(b, func(s *stand) {
		s.opts.Provider = told{s.cloud, &known}
		s.opts.Network = begun{s.network, func() { toTunnel = append(toTunnel, time.Since(known)) }}
	})
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprintf("s%d", i)
		b.StopTimer()
		s.create(id)
		b.StartTimer()
		begin := time.Now()
		if err := s.start(id); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
		b.StopTimer()
		s.stop(id)
		b.StartTimer()
	}
	slices.Sort(toTunnel)
	b.ReportMetric(float64(toTunnel[len(toTunnel)/2].Microseconds())/1000, "to-tunnel-p50-ms")
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// told notes when a creation has answered.
type told struct {
	*fake.Cloud
	at *time.Time
}

func (t told) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	i, err := t.Cloud.CreateInstance(ctx, podName, sandboxID, cloudConfig, spec)
	*t.at = time.Now()
	return i, err
}

// begun notes when the tunnel begins.
type begun struct {
	*adaptortest.Network
	note func()
}

func (b begun) Setup(ctx context.Context, netns string, cfg *podnetwork.Config, vm netip.Addr) error {
	b.note()
	return b.Network.Setup(ctx, netns, cfg, vm)
}

// BenchmarkCreateVM: see BenchmarkStartVM.
func BenchmarkCreateVM(b *testing.B) {
	s := newStand(b, nil)
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprintf("s%d", i)
		s.create(id)
		b.StopTimer()
		s.stop(id)
		b.StartTimer()
	}
}
