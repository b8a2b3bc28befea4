// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/localnet/statefile"
)

// Pool is what is on record of a pool: an adaptor of its own, in a folder of its own, that
// keeps VMs. The record is written before the adaptor is started, and removed when no VM waits.
type Pool struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`
	// AdaptorArgs are those that the user gave.
	AdaptorArgs []string `json:"adaptorArgs,omitempty"`
	Size        int      `json:"size"`
	// VCPUs and MemoryMiB are 0 for the provider's default.
	VCPUs     int       `json:"vcpus,omitempty"`
	MemoryMiB int       `json:"memoryMiB,omitempty"`
	Created   time.Time `json:"created"`
}

// MaxPoolName is the longest name of a pool, in bytes: it is in the paths of unix sockets.
const MaxPoolName = 25

func (n *Node) poolsDir() string { return filepath.Join(n.Root, "pools") }

// otherPods returns patterns of the journals of the adaptors of this root folder.
func (n *Node) otherPods() string {
	return filepath.Join(n.Root, "pods") + "," + filepath.Join(n.poolsDir(), "*", "pods")
}

func (n *Node) recordPath() string { return filepath.Join(n.dir(), "pool.json") }

// OfPool returns the node whose adaptor is that of a pool.
func (n *Node) OfPool(p *Pool) *Node {
	args := slices.Concat(p.AdaptorArgs, []string{"-pool-size", strconv.Itoa(p.Size), "-pool-vcpus", strconv.Itoa(p.VCPUs), "-pool-memory", strconv.Itoa(p.MemoryMiB)})
	return &Node{Root: n.Root, AdaptorPath: n.AdaptorPath, Pool: p.Name, Provider: p.Provider, AdaptorArgs: args}
}

// For returns the node whose adaptor has a pod's VM.
func (n *Node) For(p *record.Pod) *Node {
	of := &Node{Root: n.Root, AdaptorPath: n.AdaptorPath, Pool: p.Pool, Provider: p.Provider}
	if of.Provider == "" {
		of.Provider = of.loadDaemons().Provider
	}
	return of
}

// Pools returns the pools by name.
func (n *Node) Pools() ([]*Pool, error) {
	files, err := filepath.Glob(filepath.Join(n.poolsDir(), "*", "pool.json"))
	if err != nil {
		return nil, err
	}
	var pools []*Pool
	for _, file := range files {
		p := new(Pool)
		if err := statefile.Read(file, p); err != nil {
			return nil, fmt.Errorf("record of a pool: %w", err)
		}
		pools = append(pools, p)
	}
	return pools, nil
}

// AddPool writes the record of a pool. The caller holds the lock. Errors: there is one of the name; pods run
// in VMs of a former one.
func (n *Node) AddPool(p *Pool) error {
	of := n.OfPool(p)
	if _, err := os.Stat(of.recordPath()); err == nil {
		return fmt.Errorf("there is a pool named %q already; remove it with `outrigger pool rm %s` or take another name", p.Name, p.Name)
	}
	if Served(of.Socket()) {
		return fmt.Errorf("pods still run in VMs of a former pool named %q; remove them (outrigger rm) or take another name", p.Name)
	}
	if err := os.MkdirAll(of.dir(), 0o700); err != nil {
		return err
	}
	return errors.Join(statefile.SyncFolder(n.poolsDir()), statefile.Write(of.recordPath(), p))
}

// ForgetPool removes the record of a pool that has no VMs, and its adaptor unless pods need
// it. The caller holds the lock.
func (n *Node) ForgetPool() error {
	if d := n.loadDaemons(); len(d.Args) > 0 { // an adaptor that is started again for its pods keeps none
		d.Args = append(d.Args, "-pool-size", "0")
		if err := n.saveDaemons(d); err != nil {
			return err
		}
	}
	return removeIfThere(n.recordPath())
}

// HasVMs reports whether the node's adaptor has VMs on record.
func (n *Node) HasVMs() bool {
	entries, err := os.ReadDir(n.podsDir())
	return err == nil && len(entries) > 0
}
