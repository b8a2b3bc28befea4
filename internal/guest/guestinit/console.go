// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// console writes whole lines to the VM's console. Lines of different
// goroutines never mix.
type console struct {
	mu sync.Mutex
	w  io.Writer
}

// logf writes one line with the time since the kernel started, in seconds.
func (c *console) logf(format string, args ...any) {
	c.line("podvm-init", fmt.Sprintf(format, args...))
}

func (c *console) line(source, text string) {
	up := uptime()
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.w, "[%5d.%03d] %s: %s\n", up/time.Second, up%time.Second/time.Millisecond, source, text)
}

// copyLines prefixes what a program writes until it closes the pipe.
func (c *console) copyLines(source string, r io.Reader) {
	br := bufio.NewReaderSize(r, 4096)
	for {
		// A line longer than the buffer is written in pieces.
		text, _, err := br.ReadLine()
		if err != nil {
			return
		}
		c.line(source, string(text))
	}
}

// openConsole opens the device the kernel was told to use as console.
func openConsole() *console {
	f, err := os.OpenFile("/dev/console", os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		f = os.Stderr
	}
	return &console{w: f}
}

func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
