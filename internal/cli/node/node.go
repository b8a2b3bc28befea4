// SPDX-License-Identifier: Apache-2.0

// Package node is what `outrigger` runs on this machine for its pods: a root
// folder, a cloud-api-adaptor that is started with the first pod and stopped
// with the last, and a network. Nothing of it stays when no pod is left.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/internal/cli/procid"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// DefaultRoot is the root folder of the superuser.
const DefaultRoot = "/run/outrigger"

// Node is one root folder.
type Node struct {
	Root string
	// Provider is what an adaptor that is started here uses.
	Provider string
	// AdaptorArgs are further arguments for it.
	AdaptorArgs []string
	// AdaptorPath is the program; empty means found by [FindAdaptor].
	AdaptorPath string
}

// Pods returns the store of this node's records.
func (n *Node) Pods() record.Store { return record.Store{Dir: filepath.Join(n.Root, "pods.d")} }

// Socket returns the path of the socket of the adaptor that is started here.
func (n *Node) Socket() string { return filepath.Join(n.Root, "hypervisor.sock") }

func (n *Node) lockPath() string    { return filepath.Join(n.Root, "lock") }
func (n *Node) logPath() string     { return filepath.Join(n.Root, "adaptor.log") }
func (n *Node) adaptorPath() string { return filepath.Join(n.Root, "adaptor.json") }
func (n *Node) podsDir() string     { return filepath.Join(n.Root, "pods") }
func (n *Node) relaySocket() string { return filepath.Join(n.Root, "relay.sock") }

// lockTimeout bounds the wait for other outrigger processes, which hold the
// lock for seconds at most: while an adaptor starts or stops.
const lockTimeout = 2 * time.Minute

// Lock excludes other outrigger processes until unlock is called. The lock is
// on a file in the root folder, which goes away with it, so a lock counts only
// if its file is still the one at the path.
func (n *Node) Lock(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for {
		f, err := n.tryLock()
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", n.lockPath(), err)
		}
		if f != nil {
			return func() { f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: another outrigger holds it: %w", n.lockPath(), ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tryLock returns no file when somebody else has the lock.
func (n *Node) tryLock() (*os.File, error) {
	err := os.MkdirAll(n.Root, 0o700)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(n.lockPath(), os.O_CREATE|os.O_RDWR, 0o600)
	}
	// The folder has just been removed; MkdirAll calls that "exists" when it is
	// gone between its two looks.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, ignoreBusy(err)
	}
	mine, err1 := f.Stat()
	there, err2 := os.Stat(n.lockPath())
	if err1 != nil || err2 != nil || !os.SameFile(mine, there) {
		f.Close()
		return nil, nil
	}
	return f, nil
}

func ignoreBusy(err error) error {
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return nil
	}
	return err
}

// Served reports whether somebody answers at a unix socket.
func Served(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// daemons is what adaptor.json holds: what we started, to stop nothing else.
type daemons struct {
	Adaptor  procid.ID `json:"adaptor"`
	Relay    procid.ID `json:"relay"`
	Provider string    `json:"provider"`
	Args     []string  `json:"args,omitempty"`
}

func (n *Node) loadDaemons() (d daemons) {
	data, err := os.ReadFile(n.adaptorPath())
	if err == nil {
		json.Unmarshal(data, &d) // an unreadable file is like none
	}
	return d
}

func (n *Node) saveDaemons(d daemons) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	tmp := n.adaptorPath() + ".new"
	err = os.WriteFile(tmp, data, 0o600)
	if err == nil {
		err = os.Rename(tmp, n.adaptorPath())
	}
	if err != nil {
		os.Remove(tmp) // on a full disk half of it is there
	}
	return err
}

// Client speaks to a hypervisor service.
func Client(socket string) *podclient.Client { return podclient.New(socket) }
