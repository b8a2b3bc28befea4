// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkCall is the handler's whole work for one pod, from the request's
// bytes to those of the answer. It measures processor time of the thread, so
// that other load on the machine does not count.
func BenchmarkCall(b *testing.B) {
	for name, pod := range map[string]string{
		"usual": `{"metadata":{"name":"p"},"spec":{"runtimeClassName":"kata-remote","containers":[{"name":"a","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]}}`,
		"large": largePod(),
	} {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread() // here: each case is a goroutine of its own
			defer runtime.UnlockOSThread()
			body := fmt.Sprintf(reviewFormat, pod)
			var took []time.Duration
			for b.Loop() {
				start := processorTime(b)
				ask(b, body)
				took = append(took, processorTime(b)-start)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		b.Fatal(err)
	}
	return time.Duration(now.Nano())
}
