// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// BenchmarkCall compares an agent call through relay, TLS and forwarder with
// the same call on the agent's own unix socket, in turns. Caller, relay,
// forwarder and agent are processes of their own, as on a node and in its VM.
func BenchmarkCall(b *testing.B) {
	directSocket, relayedSocket := newProcesses(b)
	direct, relayed := serviceAt(b, directSocket), serviceAt(b, relayedSocket)

	var bare, through []time.Duration
	for b.Loop() {
		bare = append(bare, timed(b, direct))
		through = append(through, timed(b, relayed))
	}
	slices.Sort(bare)
	slices.Sort(through)
	p50 := func(d []time.Duration) float64 { return float64(d[len(d)/2].Nanoseconds()) / 1e3 }
	b.ReportMetric(p50(through)-p50(bare), "µs-added-p50")
	b.ReportMetric(p50(bare), "µs-direct-p50")
	b.ReportMetric(rate(b, relayed), "calls/s")
}

func serviceAt(b *testing.B, socket string) agent.AgentServiceService {
	b.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	b.Cleanup(func() { client.Close() })
	return agent.NewAgentServiceClient(client)
}

func timed(b *testing.B, service agent.AgentServiceService) time.Duration {
	began := time.Now()
	if _, err := service.ReadStdout(b.Context(), &agent.ReadStreamRequest{Len: 64}); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

// rate has 16 callers at once, as the streams of a busy pod.
func rate(b *testing.B, service agent.AgentServiceService) float64 {
	const callers, each = 16, 500
	began := time.Now()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				if _, err := service.ReadStdout(b.Context(), &agent.ReadStreamRequest{Len: 64}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return callers * each / time.Since(began).Seconds()
}
