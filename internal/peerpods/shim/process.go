// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"cmp"
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/types/task"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// lostStatus is the exit status of a process whose VM was lost.
const lostStatus = 255

// outputPatience is how long the output of a killed process, or of one that is
// deleted, may wait for a reader.
const outputPatience = 10 * time.Second

// readerPatience is how long the state of a process that has ended waits for a reader of its
// output. A containerd that has restarted opens its ends of the FIFOs, asks for the state, and,
// of a process that has ended, closes them again, read or not (containerd 1.6, task.Delete).
const readerPatience = 500 * time.Millisecond

// process is a container's first process or an exec, from Create to Delete.
type process struct {
	container string
	exec      string // empty for the first
	paths     paths
	spec      *agent.Process // of an exec

	mu     sync.Mutex
	status task.Status
	run    *podclient.Process // nil before the start
	stdio  *stdio             // without streams before the start
	code   uint32
	at     time.Time
	killed syscall.Signal
	noMore bool // no more input will come, said before the start was done
	exited chan struct{}
}

func newProcess(container, exec string, p paths) *process {
	return &process{container: container, exec: exec, paths: p, status: task.Status_CREATED, stdio: &stdio{}, exited: make(chan struct{})}
}

// id returns the process's id in events.
func (p *process) id() string { return cmp.Or(p.exec, p.container) }

func (p *process) state() task.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// claim moves a created process to running, so that only one caller starts it.
func (p *process) claim() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status != task.Status_CREATED {
		return failedPrecondition("process %s is %v: it cannot be started", p.id(), p.status)
	}
	p.status = task.Status_RUNNING
	return nil
}

// unclaim undoes claim after a failed start.
func (p *process) unclaim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = task.Status_CREATED
}

func (p *process) started(run *podclient.Process, s *stdio) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run, p.stdio = run, s
	if p.killed != 0 {
		s.Abandon(outputPatience)
	}
	if p.noMore {
		s.CloseStdin()
	}
}

// closeStdin may come while the process is still being started: its FIFO is
// open then, so a client may have written all it has.
func (p *process) closeStdin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noMore = true
	p.stdio.CloseStdin()
}

func (p *process) running() (*podclient.Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.status == task.Status_STOPPED:
		return nil, notFound("process %s has ended", p.id())
	case p.run == nil:
		return nil, failedPrecondition("process %s has not been started", p.id())
	}
	return p.run, nil
}

// abandon gives unread output a limit, see [stdio.Abandon].
func (p *process) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stdio.Abandon(outputPatience)
}

// kill remembers a deadly signal, whose status is known without the guest.
func (p *process) kill(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = sig
	p.stdio.Abandon(outputPatience)
}

// exit records the end, once, and publishes its event before it wakes any
// waiter, so that the event of a later Delete comes after.
func (p *process) exit(code uint32, tell func(at *timestamppb.Timestamp)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status == task.Status_STOPPED {
		return
	}
	p.status, p.code, p.at = task.Status_STOPPED, code, time.Now()
	p.stdio.Finish()
	tell(timestamppb.New(p.at))
	close(p.exited)
}

// awaitReader gives containerd the time to read what a process that has ended wrote.
func (p *process) awaitReader(ctx context.Context) {
	p.mu.Lock()
	ended, s := p.status == task.Status_STOPPED, p.stdio
	p.mu.Unlock()
	if ended {
		s.AwaitReader(ctx, readerPatience)
	}
}

// forget releases the process's resources.
func (p *process) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stdio.Release(outputPatience)
}

// result returns exit status and time; both are zero before the exit.
func (p *process) result() (uint32, *timestamppb.Timestamp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status != task.Status_STOPPED {
		return 0, nil
	}
	return p.code, timestamppb.New(p.at)
}

// setPaused moves between running and paused and leaves other states alone.
func (p *process) setPaused(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from, to := task.Status_RUNNING, task.Status_PAUSED
	if !paused {
		from, to = to, from
	}
	if p.status == from {
		p.status = to
	}
}

// statusOf returns the exit status if the guest did not report one.
func (p *process) statusOf(code int, err error) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		return uint32(code)
	case p.killed != 0:
		return 128 + uint32(p.killed)
	}
	return lostStatus
}
