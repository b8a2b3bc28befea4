// SPDX-License-Identifier: Apache-2.0

package containerlog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// Options steer Print.
type Options struct {
	// Tail shows only the last lines; negative means all.
	Tail int
	// Timestamps puts the time before each line.
	Timestamps bool
	// Follow goes on until Ended reports true and all is shown, or the context
	// ends.
	Follow bool
	// Ended reports whether nothing more will be written.
	Ended func() bool
}

// pollInterval is how often a followed log is looked at.
const pollInterval = 100 * time.Millisecond

// Print writes a log's output to stdout and stderr, byte for byte as the
// container wrote it unless timestamps are asked for.
func Print(ctx context.Context, path string, stdout, stderr io.Writer, opts Options) error {
	p := &printer{stdout: stdout, stderr: stderr, timestamps: opts.Timestamps}
	old, err := os.ReadFile(older(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { f.Close() }()
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	all := slices.Concat(old, data)
	whole := bytes.LastIndexByte(all, '\n') + 1
	if err := p.print(tail(all[:whole], opts.Tail)); err != nil || !opts.Follow {
		return err
	}
	p.rest = append(p.rest, all[whole:]...)
	return p.follow(ctx, path, &f, opts)
}

// tail cuts whole log lines to the last n lines of output.
func tail(data []byte, n int) []byte {
	if n < 0 {
		return data
	}
	if n == 0 {
		return nil
	}
	end := len(data)
	for i := end; i > 0; {
		start := bytes.LastIndexByte(data[:i-1], '\n') + 1
		if _, tag, _, ok := split(data[start:i]); ok && tag == 'F' && i != end { // it ends a line of output
			if n--; n == 0 {
				return data[i:]
			}
		}
		i = start
	}
	return data
}

type printer struct {
	stdout, stderr io.Writer
	timestamps     bool
	middle         [2]bool // in the middle of a line, for stdout and stderr
	rest           []byte
}

func (p *printer) follow(ctx context.Context, path string, f **os.File, opts Options) error {
	for {
		ended := opts.Ended()
		n, err := p.more(*f)
		if err != nil {
			return err
		}
		if rotated(path, *f) {
			next, err := os.Open(path)
			if err != nil {
				return err
			}
			(*f).Close()
			*f = next
			continue
		}
		if ended && n == 0 {
			return nil
		}
		if n == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pollInterval):
			}
		}
	}
}

func rotated(path string, f *os.File) bool {
	here, err1 := f.Stat()
	there, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && !os.SameFile(here, there)
}

// more prints the whole lines that came since the last call.
func (p *printer) more(r io.Reader) (int, error) {
	data, err := io.ReadAll(r)
	if err != nil || len(data) == 0 {
		return 0, err
	}
	p.rest = append(p.rest, data...)
	whole := bytes.LastIndexByte(p.rest, '\n') + 1
	err = p.print(p.rest[:whole])
	p.rest = append([]byte(nil), p.rest[whole:]...)
	return len(data), err
}

func (p *printer) print(data []byte) error {
	outs := [2]*bufio.Writer{bufio.NewWriter(p.stdout), bufio.NewWriter(p.stderr)}
	last := 0
	for line := range bytes.Lines(data) {
		head, tag, text, ok := split(line)
		if !ok {
			continue
		}
		which := 0
		if bytes.HasSuffix(head, []byte("stderr")) {
			which = 1
		}
		if which != last { // keep the order between the streams
			outs[last].Flush()
			last = which
		}
		p.line(outs[which], which, head, tag, text)
	}
	return errors.Join(outs[0].Flush(), outs[1].Flush())
}

func (p *printer) line(out *bufio.Writer, which int, head []byte, tag byte, text []byte) {
	if p.timestamps && !p.middle[which] {
		stamp, _, _ := bytes.Cut(head, []byte(" "))
		fmt.Fprintf(out, "%s ", stamp)
	}
	out.Write(text)
	if tag == 'F' {
		out.WriteByte('\n')
	}
	p.middle[which] = tag != 'F'
}

// split parts "TIME STREAM TAG TEXT\n" into "TIME STREAM", the tag and the text.
func split(line []byte) (head []byte, tag byte, text []byte, ok bool) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	const stream = len("stdout")
	n := len(timeFormat) + 1 + stream
	if len(line) < n+3 || line[n] != ' ' || line[n+2] != ' ' {
		return nil, 0, nil, false
	}
	return line[:n], line[n+1], line[n+3:], true
}
