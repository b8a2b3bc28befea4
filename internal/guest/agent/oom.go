// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// oomQueue holds the containers in which the kernel killed a process for want
// of memory, until GetOOMEvent delivers them.
type oomQueue struct {
	mu    sync.Mutex
	ids   []string
	added chan struct{} // has something when ids has
	kills map[string]uint64
}

func newOOMQueue() *oomQueue {
	return &oomQueue{added: make(chan struct{}, 1), kills: make(map[string]uint64)}
}

// saw records the number of kills in a container so far.
func (q *oomQueue) saw(id string, kills uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if kills <= q.kills[id] {
		return
	}
	q.kills[id] = kills
	if !slices.Contains(q.ids, id) {
		q.ids = append(q.ids, id)
		q.wake()
	}
}

func (q *oomQueue) wake() {
	select {
	case q.added <- struct{}{}:
	default:
	}
}

// next blocks until there is an event. One that could not be delivered, since
// ctx was over, stays.
func (q *oomQueue) next(ctx context.Context) (string, error) {
	for {
		select {
		case <-q.added:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if id, ok := q.take(ctx); ok {
			return id, nil
		}
	}
}

func (q *oomQueue) take(ctx context.Context) (id string, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ids) > 0 && ctx.Err() == nil {
		id, q.ids, ok = q.ids[0], q.ids[1:], true
	}
	if len(q.ids) > 0 {
		q.wake()
	}
	return id, ok
}

func (q *oomQueue) forget(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.kills, id)
}

// GetOOMEvent blocks until the kernel has killed a process of a container for
// want of memory.
func (a *Agent) GetOOMEvent(ctx context.Context, _ *agent.GetOOMEventRequest) (*agent.OOMEvent, error) {
	id, err := a.oom.next(ctx)
	if err != nil {
		return nil, fail(codes.Internal, err)
	}
	a.log.Warn("out of memory: a process was killed", "container", id)
	return &agent.OOMEvent{ContainerId: id}, nil
}

// checkOOM compares the kernel's count with what is known.
func (c *container) checkOOM(queue *oomQueue) {
	file := filepath.Join(c.cgroup.v1["memory"], "memory.oom_control")
	if c.cgroup.unified != "" {
		file = filepath.Join(c.cgroup.unified, "memory.events")
	}
	queue.saw(c.id, readTable(file)["oom_kill"])
}

// watchOOM watches for kills until the returned function is called.
func (a *Agent) watchOOM(c *container) (stop func()) {
	events, err := oomEvents(c.cgroup)
	if err != nil {
		a.log.Warn("out-of-memory events are seen only when the container ends", "container", c.id, "err", err)
		return func() { a.oom.forget(c.id) }
	}
	go func() {
		buf := make([]byte, 4096)
		for {
			if _, err := events.Read(buf); err != nil {
				return // closed
			}
			c.checkOOM(a.oom)
		}
	}()
	return func() {
		events.Close()
		a.oom.forget(c.id)
	}
}

// oomEvents returns a file that becomes readable when there may be an event:
// inotify on memory.events with v2, an eventfd with v1.
func oomEvents(c cgroup) (*os.File, error) {
	if c.unified != "" {
		fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
		if err != nil {
			return nil, os.NewSyscallError("inotify_init1", err)
		}
		file := os.NewFile(uintptr(fd), "inotify")
		if _, err := unix.InotifyAddWatch(fd, filepath.Join(c.unified, "memory.events"), unix.IN_MODIFY); err != nil {
			file.Close()
			return nil, fmt.Errorf("watch memory.events of %s: %w", c.unified, err)
		}
		return file, nil
	}
	return oomEventsV1(c.v1["memory"])
}

func oomEventsV1(dir string) (*os.File, error) {
	control, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return nil, err
	}
	defer control.Close()
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	file := os.NewFile(uintptr(fd), "eventfd")
	line := fmt.Sprintf("%d %d", fd, control.Fd())
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), []byte(line), 0); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}
