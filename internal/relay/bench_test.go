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
// the same call on the agent's own unix socket, and with one that a client
// makes to the forwarder by TLS itself, in turns. Caller, relay, forwarder and
// agent are processes of their own, as on a node and in its VM.
func BenchmarkCall(b *testing.B) {
	c := newProcesses(b)
	direct, relayed := dialService(b, dialUnix(c.agentSocket)), dialService(b, dialUnix(c.socket))
	vm, err := newTarget(c.request())
	if err != nil {
		b.Fatal(err)
	}
	forwarded := dialService(b, func() (net.Conn, error) { return vm.connect(b.Context()) })

	var bare, secure, through []time.Duration
	for b.Loop() {
		bare = append(bare, timed(b, direct))
		secure = append(secure, timed(b, forwarded))
		through = append(through, timed(b, relayed))
	}
	b.ReportMetric(p50(through)-p50(bare), "µs-added-p50")
	b.ReportMetric(p50(through)-p50(secure), "µs-relay-p50")
	b.ReportMetric(p50(bare), "µs-direct-p50")
	b.ReportMetric(rate(b, relayed), "calls/s")
}

// p50 answers the median in microseconds.
func p50(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds()) / 1e3
}

func dialUnix(socket string) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("unix", socket) }
}

func dialService(b *testing.B, dial func() (net.Conn, error)) agent.AgentServiceService {
	b.Helper()
	conn, err := dial()
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
