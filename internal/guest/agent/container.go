// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/outrigger/outrigger/internal/guest/pull"
)

// How far a container is.
const (
	creating int32 = iota // being made; others do not see it yet
	created
	started
)

// keptExecs is how many finished execs are remembered: a health probe makes
// one every few seconds.
const keptExecs = 64

// container is one container of the sandbox.
type container struct {
	id string
	// name is for humans; empty if the runtime gave none.
	name string
	// pause is the pod's sandbox container, which is the sandbox's pause
	// process and unknown to the runtime.
	pause  bool
	bundle string
	// rootfs and scratch belong to its image; empty without one.
	rootfs, scratch string
	pull            atomic.Pointer[pull.Progress] // nil but while its image is pulled
	// sources are bind mounts of parts of volumes, there until the runtime has mounted them.
	sources []string
	// sharedPID: its processes do not end with the first one by themselves.
	sharedPID bool
	// noNewPrivileges also holds for execs, whose requests may not say it.
	noNewPrivileges bool
	// unsealed are variables that were sealed Secrets: text by what it was sealed as.
	unsealed sync.Map
	cgroup   cgroup
	init     *process
	state    atomic.Int32
	stopOOM  func()

	mu       sync.Mutex
	execs    map[string]*process // nil while it is being started
	finished []string            // execs, oldest first
	removing turn
}

func newContainer(id, stateDir string) *container {
	return &container{
		id: id, bundle: filepath.Join(stateDir, "containers", id), stopOOM: func() {},
		execs: make(map[string]*process), removing: newTurn(),
	}
}

func (c *container) process(execID string) (*process, bool) {
	if execID == "" || execID == c.id {
		return c.init, c.init != nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.execs[execID]
	return p, p != nil
}

// reserve takes an exec id; false if it is in use.
func (c *container) reserve(execID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.execs[execID]; taken || execID == c.id || execID == "" {
		return false
	}
	c.execs[execID] = nil
	c.forgetFinished()
	return true
}

// settle stores the process of a reserved exec; nil releases the id.
func (c *container) settle(execID string, p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p == nil {
		delete(c.execs, execID)
		return
	}
	c.execs[execID] = p
	c.finished = append(c.finished, execID)
}

// forgetFinished drops the oldest finished execs.
func (c *container) forgetFinished() {
	spare := len(c.finished) - keptExecs
	c.finished = slices.DeleteFunc(c.finished, func(id string) bool {
		p := c.execs[id]
		if spare <= 0 || !p.finished() {
			return false
		}
		p.close()
		delete(c.execs, id)
		spare--
		return true
	})
}

// closeStreams ends all its streams.
func (c *container) closeStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.init != nil {
		c.init.close()
	}
	for _, p := range c.execs {
		if p != nil {
			p.close()
		}
	}
}

// idCharacters are what runtimes accept in an id.
const idCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+"

// validID reports whether runtimes accept an id and it is safe as a file name.
func validID(id string) bool {
	return id != "" && len(id) <= 255 && !strings.ContainsAny(id[:1], ".-") && strings.Trim(id, idCharacters) == ""
}
