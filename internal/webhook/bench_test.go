// SPDX-License-Identifier: Apache-2.0

//go:build bench

package webhook

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// longest is what one call may take, the handler's whole work included.
const longest = 5 * time.Millisecond

// TestCallsAreFast measures processor time, so that other load on the machine
// does not count.
func TestCallsAreFast(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, pod := range map[string]string{
		"usual": `{"metadata":{"name":"p"},"spec":{"runtimeClassName":"kata-remote","containers":[{"name":"a","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]}}`,
		"large": largePod(),
	} {
		body := fmt.Sprintf(reviewFormat, pod)
		took := make([]time.Duration, 2000)
		for i := range took {
			start := processorTime(t)
			ask(t, body)
			took[i] = processorTime(t) - start
		}
		slices.Sort(took)
		p99 := took[len(took)*99/100]
		t.Logf("%s pod of %d bytes: p50 %v, p99 %v", name, len(body), took[len(took)/2], p99)
		if p99 > longest {
			t.Errorf("%s pod: p99 is %v, want at most %v", name, p99, longest)
		}
	}
}

func processorTime(t *testing.T) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
