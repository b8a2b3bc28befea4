// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// BenchmarkCall compares an agent call through relay, TLS and forwarder with
// the same call on the agent's own unix socket, and with one that a client
// makes to the forwarder by TLS itself, in turns. Caller, relay, forwarder and
// agent are processes of their own, as on a node and in its VM. How often relay
// and forwarder wait for a call does not depend on what else the machine does.
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
	b.ReportMetric(waits(b, c.between, relayed), "waits/call")
	b.ReportMetric(rate(b, relayed), "calls/s")
}

// waits returns how often the threads of processes wait during a call.
func waits(b *testing.B, pids []int, service agent.AgentServiceService) float64 {
	const calls = 500
	before := waited(b, pids)
	for range calls {
		timed(b, service)
	}
	return float64(waited(b, pids)-before) / calls
}

// waited counts voluntary context switches (proc_pid_status(5)).
func waited(b *testing.B, pids []int) (n int) {
	b.Helper()
	for _, pid := range pids {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(threads) == 0 {
			b.Fatalf("no threads of process %d: %v", pid, err)
		}
		for _, path := range threads {
			status, _ := os.ReadFile(path) // it may have ended
			_, rest, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
			count, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
			v, _ := strconv.Atoi(count)
			n += v
		}
	}
	return n
}

// p50 returns the median in microseconds.
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
