// SPDX-License-Identifier: Apache-2.0

// Package containerlog keeps the output of a detached container in the format
// of CRI runtimes, one line for each line of output:
//
//	2006-01-02T15:04:05.000000000Z stdout F text
//
// P instead of F says that no newline follows the text. The log is bounded:
// past the limit the older half goes away.
package containerlog

import (
	"bytes"
	"os"
	"sync"
	"time"
)

// maxLine is the longest text of one line, in bytes, as in containerd.
const maxLine = 16 << 10

// timeFormat has a fixed width, so logs sort as text.
const timeFormat = "2006-01-02T15:04:05.000000000Z"

// Log writes one log. It is safe for concurrent use.
type Log struct {
	path  string
	limit int64

	mu   sync.Mutex
	file *os.File
	size int64
	now  func() time.Time
}

// Create opens a log for appending. It never takes more than limit bytes on
// disk; nothing is lost while it has not been reached.
func Create(path string, limit int64) (*Log, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Log{path: path, limit: limit, file: f, size: info.Size(), now: time.Now}, nil
}

// older returns the file to which the log rotates.
func older(path string) string { return path + ".1" }

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// Stream gives a writer for one stream: stdout or stderr.
func (l *Log) Stream(name string) *Writer { return &Writer{log: l, name: name} }

// Writer is one stream of a log. Text without a newline is written at once as
// a partial line, so nothing waits in memory when the process dies.
type Writer struct {
	log  *Log
	name string
}

func (w *Writer) Write(data []byte) (int, error) {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	stamp := w.log.now().UTC().Format(timeFormat)
	var out bytes.Buffer
	for rest := data; len(rest) > 0; {
		line := rest[:min(len(rest), maxLine)]
		tag := "P"
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line, rest, tag = line[:i], rest[i+1:], "F"
		} else {
			rest = rest[len(line):]
		}
		out.WriteString(stamp + " " + w.name + " " + tag + " ")
		out.Write(line)
		out.WriteByte('\n')
	}
	if err := w.log.append(out.Bytes()); err != nil {
		return 0, err
	}
	return len(data), nil
}

func (l *Log) append(data []byte) error {
	if l.size > 0 && l.size+int64(len(data)) > l.limit/2 {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	n, err := l.file.Write(data)
	l.size += int64(n)
	return err
}

func (l *Log) rotate() error {
	if err := os.Rename(l.path, older(l.path)); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	l.file.Close()
	l.file, l.size = f, 0
	return nil
}
