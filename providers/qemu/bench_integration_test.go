// SPDX-License-Identifier: Apache-2.0

//go:build integration

package qemu

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// BenchmarkCreateInstance is how long a caller waits until QEMU has set up the
// machine; own-ms is the part of it that is not QEMU's.
func BenchmarkCreateInstance(b *testing.B) {
	p := open(b, testConfig(b))
	keepNetwork(b, p)
	var own time.Duration
	for b.Loop() {
		i := create(b, p, "sandbox-1")
		b.StopTimer()
		own += ownShare(b, p)
		if err := p.DeleteInstance(context.Background(), i.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(own.Microseconds())/1000/float64(b.N), "own-ms/op")
}

// keepNetwork makes an instance that is off, so that the bridge stays.
func keepNetwork(b *testing.B, p *Provider) {
	b.Helper()
	i := create(b, p, "keeps-the-network")
	if err := p.PowerOff(b.Context(), i.ID); err != nil {
		b.Fatal(err)
	}
}

// ownShare makes an instance without starting QEMU.
func ownShare(b *testing.B, p *Provider) time.Duration {
	b.Helper()
	begin := time.Now()
	r, err := p.plan(b.Context(), "pod", "sandbox-2", provider.InstanceTypeSpec{})
	if err == nil {
		err = p.store.instances().claim(r, "podvm-bench")
	}
	if err == nil {
		err = p.attach(r)
	}
	if err == nil {
		err = p.writeSeed(r, string(userData))
	}
	if err == nil {
		err = p.makeDisks(b.Context(), r)
	}
	if err == nil {
		err = p.store.instances().save(r)
	}
	took := time.Since(begin)
	if err != nil {
		b.Fatal(err)
	}
	if err := p.discard(context.Background(), r); err != nil {
		b.Fatal(err)
	}
	return took
}

// BenchmarkBoot is the time from the call to the first answer to TCP;
// qemu-cpu-s is the CPU time that QEMU has used by then, which depends less on
// what else the machine does.
func BenchmarkBoot(b *testing.B) {
	p := open(b, testConfig(b))
	keepNetwork(b, p)
	var used float64
	for b.Loop() {
		i := create(b, p, "sandbox-1")
		awaitTCP(b, p, i)
		b.StopTimer()
		used += cpuSeconds(b, p, i.ID)
		if err := p.DeleteInstance(context.Background(), i.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(used/float64(b.N), "qemu-cpu-s/op")
}

// cpuSeconds reads utime and stime of /proc/PID/stat (proc(5)), in ticks of
// 10 ms.
func cpuSeconds(b *testing.B, p *Provider, id string) float64 {
	b.Helper()
	r, err := p.existing(id)
	if err != nil {
		b.Fatal(err)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.Process.PID))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return float64(user+system) / 100
}
