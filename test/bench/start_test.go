// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/stand"
)

// starts is how long the command lines take from their start to their end with a command that asks nobody: what a
// shell's completion takes at each key. Beside them is `true`, for what a process costs.
func starts(t *testing.T, runs int) []promises.Figure {
	commands := [][]string{{stand.Binary(t, "outrigger"), "version"}, {stand.Binary(t, "kubectl-outrigger"), "--help"}, {"true"}}
	elapsed := make([][]time.Duration, len(commands))
	for range 10 * runs {
		for i, command := range commands {
			cmd := exec.Command(command[0], command[1:]...)
			begin := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", cmd, err, out)
			}
			elapsed[i] = append(elapsed[i], time.Since(begin))
		}
	}
	ms := func(i int) float64 { return float64(median(elapsed[i]).Microseconds()) / 1000 }
	how := fmt.Sprintf("elapsed until it has ended, median; `true` beside it: %.1f ms", ms(2))
	return []promises.Figure{
		{Promise: "start-outrigger", Value: ms(0), How: how},
		{Promise: "start-kubectl-outrigger", Value: ms(1), How: how},
	}
}
