// SPDX-License-Identifier: Apache-2.0

package podclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// readLen is what the shim asks for in ReadStdout and ReadStderr, in bytes.
const readLen = 32768

// IO connects a process to this side. Nil readers and writers mean nothing to
// read and discard; the agent's pipes are drained in any case.
type IO struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Process is a container's first process or one made by Exec. Order of calls:
// Stream once, then any others, then Wait.
type Process struct {
	pod         *Pod
	containerID string
	execID      string
	tty         bool

	streams   sync.WaitGroup
	streaming sync.Once
	ended     chan struct{}
	stdinOnce sync.Once

	mu        sync.Mutex
	outputErr error
	outFailed chan struct{}
}

func newProcess(p *Pod, containerID, execID string, tty bool) *Process {
	return &Process{
		pod: p, containerID: containerID, execID: execID, tty: tty,
		ended: make(chan struct{}), outFailed: make(chan struct{}),
	}
}

// ID returns the exec id, or for a container's first process the container id.
func (p *Process) ID() string { return p.execID }

// Stream begins to copy output, and input if there is any, as a shim does once
// the process was started. It returns at once; only the first call counts.
func (p *Process) Stream(streams IO) {
	p.streaming.Do(func() {
		p.readLoop(p.pod.agent.ReadStdout, streams.Stdout)
		if !p.tty {
			p.readLoop(p.pod.agent.ReadStderr, streams.Stderr)
		}
		if streams.Stdin != nil {
			go p.writeLoop(streams.Stdin)
		}
		go func() {
			p.streams.Wait()
			close(p.ended)
		}()
	})
}

// readLoop copies one stream until it ends: an error reply or empty data. The
// calls are never cancelled, since the agent would take a lost reply for read.
func (p *Process) readLoop(read func(context.Context, *agent.ReadStreamRequest) (*agent.ReadStreamResponse, error), w io.Writer) {
	req := &agent.ReadStreamRequest{ContainerId: p.containerID, ExecId: p.execID, Len: readLen}
	p.streams.Go(func() {
		for {
			resp, err := read(context.Background(), req)
			if err != nil || len(resp.Data) == 0 {
				return
			}
			w = p.write(w, resp.Data)
		}
	})
}

// write returns the writer for the rest of the stream: nil after a failure.
func (p *Process) write(w io.Writer, data []byte) io.Writer {
	if w == nil {
		return nil
	}
	if _, err := w.Write(data); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.outputErr == nil {
			p.outputErr = err
			close(p.outFailed)
		}
		return nil
	}
	return w
}

// OutputFailed returns a channel that is closed when a writer given to Stream returns
// an error. The stream is then drained and dropped, so that the process does not hang.
func (p *Process) OutputFailed() <-chan struct{} { return p.outFailed }

// OutputErr returns the first error of a writer.
func (p *Process) OutputErr() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outputErr
}

func (p *Process) writeLoop(r io.Reader) {
	buf := make([]byte, readLen)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if werr := p.WriteStdin(context.Background(), buf[:n]); werr != nil {
				return
			}
		}
		// A reader that its owner has closed is not an end of input: nobody
		// cares any more, since the process has ended.
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			p.CloseStdin(context.Background())
			return
		}
	}
}

// WriteStdin writes all of data, in as many calls as the agent wants. Unlike
// the shim's it has no deadline: a process may take its time to read, and a
// write that timed out could not be repeated without doubling data.
func (p *Process) WriteStdin(ctx context.Context, data []byte) error {
	for len(data) > 0 {
		resp, err := p.pod.agent.WriteStdin(ctx, &agent.WriteStreamRequest{
			ContainerId: p.containerID, ExecId: p.execID, Data: data,
		})
		if err != nil {
			return p.pod.lost(err)
		}
		if resp.Len == 0 || int(resp.Len) > len(data) {
			return fmt.Errorf("standard input: the agent took %d of %d bytes", resp.Len, len(data))
		}
		data = data[resp.Len:]
	}
	return nil
}

// CloseStdin gives the process end of file. Repeating it is harmless.
func (p *Process) CloseStdin(ctx context.Context) (err error) {
	p.stdinOnce.Do(func() {
		req := &agent.CloseStdinRequest{ContainerId: p.containerID, ExecId: p.execID}
		_, err = ask(ctx, p.pod, "", CallTimeout, p.pod.agent.CloseStdin, req)
	})
	return err
}

// Resize sets the size of the terminal in characters.
func (p *Process) Resize(ctx context.Context, rows, columns uint32) error {
	req := &agent.TtyWinResizeRequest{ContainerId: p.containerID, ExecId: p.execID, Row: rows, Column: columns}
	_, err := ask(ctx, p.pod, "", CallTimeout, p.pod.agent.TtyWinResize, req)
	return err
}

// Signal signals this process only.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	return p.pod.signal(ctx, p.containerID, p.execID, sig)
}

func (p *Pod) signal(ctx context.Context, containerID, execID string, sig syscall.Signal) error {
	req := &agent.SignalProcessRequest{ContainerId: containerID, ExecId: execID, Signal: uint32(sig)}
	_, err := ask(ctx, p, "", CallTimeout, p.agent.SignalProcess, req)
	return err
}

// Wait returns the exit status, 128+n for signal n, after all output has been
// written. It may be called again. If the agent was lost the error says so.
func (p *Process) Wait(ctx context.Context) (int, error) {
	p.Stream(IO{})
	select {
	case <-p.ended:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return p.Ended(ctx)
}

// Ended returns the exit status like Wait, and leaves the output to whoever reads it.
func (p *Process) Ended(ctx context.Context) (int, error) {
	resp, err := p.pod.agent.WaitProcess(ctx, &agent.WaitProcessRequest{ContainerId: p.containerID, ExecId: p.execID})
	if err != nil {
		return 0, p.pod.lost(err)
	}
	return int(resp.Status), nil
}

// ExecSpec is a further process in a running container.
type ExecSpec struct {
	Args []string
	// Env is the whole environment, as KEY=value. A container runtime sends
	// the container's own and adds to it.
	Env  []string
	Cwd  string
	User User
	TTY  bool
	// Capabilities are all that the process has; nil means the default.
	Capabilities []string
	// NoNewPrivileges keeps programs such as sudo from getting more rights.
	NoNewPrivileges bool
	// Rows and Columns are the terminal's first size; 0 leaves the agent's.
	Rows, Columns uint32
}

// Exec starts a process in the container. The caller then calls Stream and Wait.
func (c *Container) Exec(ctx context.Context, spec ExecSpec) (*Process, error) {
	if len(spec.Args) == 0 {
		return nil, errors.New("exec needs a command")
	}
	return c.ExecProcess(ctx, NewID()[:32], spec.process())
}

// ExecProcess is like Exec but takes the process of the agent protocol.
func (c *Container) ExecProcess(ctx context.Context, id string, proc *agent.Process) (*Process, error) {
	req := &agent.ExecProcessRequest{ContainerId: c.containerID, ExecId: id, Process: proc}
	if _, err := ask(ctx, c.pod, "", CallTimeout, c.pod.agent.ExecProcess, req); err != nil {
		return nil, err
	}
	return newProcess(c.pod, c.containerID, id, proc.Terminal), nil
}

func (s ExecSpec) process() *agent.Process {
	proc := &agent.Process{
		Terminal: s.TTY, Args: s.Args, Env: s.Env, Cwd: cmp.Or(s.Cwd, "/"), User: s.User.proto(),
		Capabilities: capabilities(s.Capabilities), NoNewPrivileges: s.NoNewPrivileges,
	}
	if s.Rows > 0 && s.Columns > 0 {
		proc.ConsoleSize = &agent.Box{Height: s.Rows, Width: s.Columns}
	}
	return proc
}
