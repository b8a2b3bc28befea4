// SPDX-License-Identifier: Apache-2.0

// Package marks is how the programs of a guest note what takes time in its start.
package marks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/outrigger/outrigger/internal/protocol/timeline"
)

// Bounds of what is kept: the number of steps, and the bytes of a detail and of the file.
// A pod that lives for years starts containers again and again.
const (
	MaxSteps  = 128
	MaxDetail = 96
	maxFile   = 32 << 10
)

// RuntimeStart is the step that ends a start: a container runs.
const RuntimeStart = "runtime-start"

// Marks is the file in which all programs of a guest note their steps, one a line.
// The zero value notes nothing. Notes that cannot be written are lost: a timeline is
// worth no start.
type Marks struct{ Path string }

// Beside returns the marks of the guest whose agent has that socket.
func Beside(agentSocket string) Marks {
	return Marks{filepath.Join(filepath.Dir(agentSocket), "timeline")}
}

// mark is one line. Times are CLOCK_BOOTTIME: the wall clock is set during the start.
type mark struct {
	Name   string        `json:"name"`
	Start  time.Duration `json:"start"`
	End    time.Duration `json:"end"`
	Detail string        `json:"detail,omitempty"`
}

// Uptime returns the guest's CLOCK_BOOTTIME.
func Uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// ProcessStart returns the Uptime at which this process was started, to 10 ms; now if
// that cannot be known. (proc_pid_stat(5): starttime is the 20th field after the name.)
func ProcessStart() time.Duration {
	now := Uptime()
	data, _ := os.ReadFile("/proc/self/stat")
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return now
	}
	var ticks int64
	for _, digit := range fields[19] {
		ticks = 10*ticks + int64(digit-'0')
	}
	return min(time.Duration(ticks)*(time.Second/userHz), now)
}

// userHz is the kernel's USER_HZ on all architectures that guests have.
const userHz = 100

// Note notes a step that has just ended.
func (m Marks) Note(name string, start time.Duration, detail string) {
	m.Add(name, start, Uptime(), detail)
}

// Add notes a step.
func (m Marks) Add(name string, start, end time.Duration, detail string) {
	if m.Path == "" {
		return
	}
	line, err := json.Marshal(mark{name, start, end, detail[:min(len(detail), MaxDetail)]})
	if err != nil {
		return
	}
	if os.MkdirAll(filepath.Dir(m.Path), 0o711) != nil {
		return
	}
	file, err := os.OpenFile(m.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() < maxFile {
		file.Write(append(line, '\n')) // in one piece: the programs write at the same time
	}
}

// Read returns what was noted, on the clock of [Uptime].
func (m Marks) Read() []*pb.Step {
	file, err := os.Open(m.Path)
	if err != nil {
		return nil
	}
	defer file.Close()
	var steps []*pb.Step
	for lines := bufio.NewScanner(io.LimitReader(file, 2*maxFile)); lines.Scan() && len(steps) < MaxSteps; {
		var line mark
		if json.Unmarshal(lines.Bytes(), &line) == nil {
			steps = append(steps, &pb.Step{
				Name: line.Name, Where: "guest", StartNano: int64(line.Start), EndNano: int64(line.End), Detail: line.Detail,
			})
		}
	}
	return steps
}
