// SPDX-License-Identifier: Apache-2.0

//go:build integration

package qemu

import (
	"context"
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
		err = p.store.claim(r, "podvm-bench")
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
		err = p.store.save(r)
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

// BenchmarkBoot is the time from the call to the first answer to TCP.
func BenchmarkBoot(b *testing.B) {
	p := open(b, testConfig(b))
	keepNetwork(b, p)
	for b.Loop() {
		i := create(b, p, "sandbox-1")
		awaitTCP(b, p, i)
		b.StopTimer()
		if err := p.DeleteInstance(context.Background(), i.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
