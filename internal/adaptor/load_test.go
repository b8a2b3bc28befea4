// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
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
	s := newStand(b, nil)
	var took []time.Duration
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
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
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
