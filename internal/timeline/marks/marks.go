// SPDX-License-Identifier: Apache-2.0

// Package marks is how the programs of a guest note what takes time in its start.
package marks

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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

// Handover is the step by which a VM of a pool became that of a pod. What was before it does
// not belong to the start of the pod.
const Handover = "handover"

// Marks is the file in which all programs of a guest note their steps, one a line.
// The zero value notes nothing. Notes that cannot be written are lost: a timeline is
// worth no start.
type Marks struct{ Path string }

// Beside returns the marks of the guest whose agent has that socket.
func Beside(agentSocket string) Marks {
	return Marks{filepath.Join(filepath.Dir(agentSocket), "timeline")}
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
	if m.Path == "" || os.MkdirAll(filepath.Dir(m.Path), 0o711) != nil {
		return
	}
	file, err := os.OpenFile(m.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() < maxFile {
		file.Write(line(name, start, end, detail)) // in one piece: the programs write at the same time
	}
}

// line returns "NAME START END DETAIL": times are CLOCK_BOOTTIME in nanoseconds, since the
// wall clock is set during the start. JSON would cost an emulated guest milliseconds.
func line(name string, start, end time.Duration, detail string) []byte {
	text := append([]byte(name), ' ')
	text = append(strconv.AppendInt(text, int64(start), 10), ' ')
	text = append(strconv.AppendInt(text, int64(end), 10), ' ')
	return append(strconv.AppendQuote(text, detail[:min(len(detail), MaxDetail)]), '\n')
}

// parse reads a line; false if it is not one.
func parse(text string) (*pb.Step, bool) {
	fields := strings.SplitN(text, " ", 4)
	if len(fields) < 4 {
		return nil, false
	}
	start, err1 := strconv.ParseInt(fields[1], 10, 64)
	end, err2 := strconv.ParseInt(fields[2], 10, 64)
	detail, err3 := strconv.Unquote(fields[3])
	step := &pb.Step{Name: fields[0], Where: "guest", StartNano: start, EndNano: end, Detail: strings.ToValidUTF8(detail, "?")}
	return step, err1 == nil && err2 == nil && err3 == nil && utf8.ValidString(fields[0])
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
		if step, ok := parse(lines.Text()); ok {
			steps = append(steps, step)
		}
	}
	return steps
}
