// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
)

// BenchmarkCold is how long a controller that has just started takes until it
// has looked at every one of so many PeerPods and swept once. Also noted: its
// memory then, and its share of one processor in the ten seconds after it, a
// sweep each second.
func BenchmarkCold(b *testing.B) {
	const pods = 5000
	w := newWorld(b)
	w.configure(map[string]string{"CLOUD_PROVIDER": "fake", "FAKE_SIZE": fmt.Sprint(pods)}, "right")
	w.populate(pods)
	metrics := "127.0.0.1:" + freePort(b)
	for b.Loop() {
		began := time.Now()
		p := w.start(b, "-metrics-bind-address", metrics, "-sweep-period", "1s", "-sweep-grace", "1h")
		eventually(b, func() string {
			text := fetch("http://" + metrics + "/metrics")
			seen := sample(text, `controller_runtime_reconcile_total{controller="peerpod",result="success"}`)
			if seen < pods || sample(text, `peerpod_ctrl_instances{claimed="true",provider="fake"}`) < pods {
				return fmt.Sprintf("%v of %d PeerPods seen", seen, pods)
			}
			return ""
		})
		b.ReportMetric(time.Since(began).Seconds(), "cold-s")
		b.ReportMetric(p.cpu(), "cold-cpu-s")
		b.ReportMetric(p.memory("VmRSS:")/1024, "rss-MiB")
		before := p.cpu()
		time.Sleep(10 * time.Second) // the figure is a share of time
		b.ReportMetric(10*(p.cpu()-before), "steady-%")
		p.kill()
	}
}

// populate claims and notes instances as nodes do, many at a time.
func (w *world) populate(pods int) {
	w.t.Helper()
	var nodes sync.WaitGroup
	numbers := make(chan int)
	for range 16 {
		nodes.Go(func() {
			for n := range numbers {
				w.insist(func() error { return w.note(n) })
			}
		})
	}
	for n := range pods {
		numbers <- n
	}
	close(numbers)
	nodes.Wait()
}

func (w *world) note(n int) error {
	pp, err := w.claims.Claim(w.t.Context(), claims.Claim{Provider: "fake", SandboxID: sandbox(n), Cluster: "c1", Namespace: "default", PodName: "web"})
	if err != nil {
		return err
	}
	_, err = w.claims.Update(w.t.Context(), pp, claims.Created(v1alpha1.Instance{ID: instanceID(n)}), claims.Ready)
	return err
}

// sample returns one value of a metrics page; 0 when it is not there.
func sample(text, name string) float64 {
	_, rest, found := strings.Cut(text, "\n"+name+" ")
	if !found {
		return 0
	}
	value, _, _ := strings.Cut(rest, "\n")
	number, _ := strconv.ParseFloat(value, 64)
	return number
}

// memory reads a line of /proc/PID/status, in KiB.
func (p *process) memory(line string) float64 {
	data, _ := os.ReadFile(filepath.Join("/proc", fmt.Sprint(p.cmd.Process.Pid), "status"))
	for text := range strings.Lines(string(data)) {
		if fields := strings.Fields(text); len(fields) > 1 && fields[0] == line {
			number, _ := strconv.ParseFloat(fields[1], 64)
			return number
		}
	}
	return 0
}

// cpu is how many seconds of processor time it has used (proc(5): fields 14
// and 15 of stat, in hundredths).
func (p *process) cpu() float64 {
	data, _ := os.ReadFile(filepath.Join("/proc", fmt.Sprint(p.cmd.Process.Pid), "stat"))
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}
