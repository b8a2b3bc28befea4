// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"maps"
	"sync"
	"time"
)

// memory caches what this process knows about instances and the cloud may not
// list yet. It only saves calls and waiting: nothing depends on it.
type memory struct {
	made    notes[made] // by instance id
	deleted notes[bool] // by instance id
	spent   notes[int]  // how many client tokens were used by instances that are gone, by that of the first
	// balancing is when a load balancer may have been made, by key.
	balancing notes[time.Time]
}

// made is an instance that this process has made.
type made struct {
	at time.Time
	// seen is set once the cloud has listed it; if it is missing after that it
	// is gone.
	seen bool
	// hasAddress is set if it may have an address of its own.
	hasAddress bool
}

// keep is how long things are remembered: longer than the cloud's answers lag
// behind, and than its client tokens are good for.
const keep = 25 * time.Hour

// many is how many notes are worth looking through.
const many = 1000

// notes are values by key, each kept for a while.
type notes[V any] struct {
	mu   sync.Mutex
	list map[string]note[V]
}

type note[V any] struct {
	value V
	at    time.Time
}

// put notes a value, and forgets old ones if there are many.
func (n *notes[V]) put(key string, value V) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.list == nil {
		n.list = map[string]note[V]{}
	}
	n.list[key] = note[V]{value, time.Now()}
	if len(n.list) >= many {
		maps.DeleteFunc(n.list, func(_ string, old note[V]) bool { return time.Since(old.at) > keep })
	}
}

func (n *notes[V]) find(key string) (V, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, ok := n.list[key]
	return found.value, ok
}

func (n *notes[V]) get(key string) V {
	value, _ := n.find(key)
	return value
}

// change changes a value, if there is one.
func (n *notes[V]) change(key string, do func(*V)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found, ok := n.list[key]; ok {
		do(&found.value)
		n.list[key] = found
	}
}

func (n *notes[V]) drop(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.list, key)
}
