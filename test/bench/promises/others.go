// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Others returns which share of the processors is taken for a while in which the
// caller does nothing; what a hypervisor gives to others counts.
func Others(during time.Duration) (float64, error) {
	before, err := readTicks()
	if err != nil {
		return 0, err
	}
	time.Sleep(during)
	after, err := readTicks()
	if err != nil {
		return 0, err
	}
	return before.share(after), nil
}

// ticks are the first line of /proc/stat.
type ticks struct{ idle, all float64 }

func readTicks() (ticks, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return ticks{}, err
	}
	return parseTicks(string(text))
}

// parseTicks reads user, nice, system, idle, iowait, irq, softirq and steal;
// guests' time is in the first two already (proc_stat(5)).
func parseTicks(stat string) (t ticks, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return t, fmt.Errorf("/proc/stat begins with %q, not with the times of all processors", line)
	}
	for i, field := range fields[1:9] {
		v, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return t, fmt.Errorf("/proc/stat: %w", err)
		}
		if t.all += v; i == 3 || i == 4 {
			t.idle += v
		}
	}
	return t, nil
}

func (t ticks) share(later ticks) float64 {
	if later.all <= t.all {
		return 0
	}
	return 1 - (later.idle-t.idle)/(later.all-t.all)
}
