// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"sync"
	"time"
)

// memory caches what this process knows about instances and the cloud may not
// list yet. It only saves calls and waiting: nothing depends on it.
type memory struct {
	mu      sync.Mutex
	made    map[string]made      // by instance id
	deleted map[string]time.Time // by instance id
	spent   map[string]spent     // by client token of the first generation
	// balancing is when a load balancer may have been made, by key.
	balancing map[string]time.Time
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

// spent is how many client tokens were used by instances that are gone.
type spent struct {
	at         time.Time
	generation int
}

// keep is how long things are remembered: longer than the cloud's answers lag
// behind, and than its client tokens are good for.
const keep = 25 * time.Hour

func newMemory() *memory {
	return &memory{made: map[string]made{}, deleted: map[string]time.Time{}, spent: map[string]spent{}, balancing: map[string]time.Time{}}
}

func (m *memory) rememberMade(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made[id] = made{at: time.Now()}
}

func (m *memory) rememberSeen(id string) { m.change(id, func(n *made) { n.seen = true }) }

func (m *memory) expectAddress(id string, expected bool) {
	m.change(id, func(n *made) { n.hasAddress = expected })
}

// change changes what is remembered of an instance that was made here.
func (m *memory) change(id string, do func(*made)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if note, ok := m.made[id]; ok {
		do(&note)
		m.made[id] = note
	}
}

func (m *memory) madeHere(id string) (made, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	note, ok := m.made[id]
	return note, ok
}

func (m *memory) rememberDeleted(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.deleted[id] = now
	forgetOld(m.deleted, now, func(at time.Time) time.Time { return at })
	forgetOld(m.spent, now, func(s spent) time.Time { return s.at })
	forgetOld(m.made, now, func(n made) time.Time { return n.at })
	forgetOld(m.balancing, now, func(at time.Time) time.Time { return at })
}

func (m *memory) forgetMade(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.made, id)
}

func (m *memory) isDeleted(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.deleted[id]
	return ok
}

func (m *memory) rememberBalancing(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.balancing[key] = time.Now()
}

func (m *memory) forgetBalancing(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.balancing, key)
}

func (m *memory) balancedAt(key string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.balancing[key]
}

func (m *memory) rememberSpent(token string, generation int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent[token] = spent{time.Now(), max(generation, m.spent[token].generation)}
}

func (m *memory) spentOf(token string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spent[token].generation
}

// many is how many entries are worth looking through.
const many = 1000

func forgetOld[V any](entries map[string]V, now time.Time, at func(V) time.Time) {
	if len(entries) < many {
		return
	}
	for key, value := range entries {
		if now.Sub(at(value)) > keep {
			delete(entries, key)
		}
	}
}
