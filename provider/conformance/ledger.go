// SPDX-License-Identifier: Apache-2.0

package conformance

import "sync"

// ledger is what a check made, so that it can be deleted.
type ledger struct {
	running sync.WaitGroup

	mu sync.Mutex
	// ids are those the provider returned, in order.
	ids []string
	// lost are creations that returned no id: nobody knows what they made.
	lost map[string]creation
	// balancers are the keys of load balancers that were asked for.
	balancers []string
	// disks and snapshots are ids, and whether there may be others.
	disks, snapshots       []string
	diskLost, snapshotLost bool
}

func (l *ledger) began(c creation) {
	l.running.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.lost = map[string]creation{}
	}
	l.lost[c.key] = c
}

func (l *ledger) ended(c creation, o outcome) {
	defer l.running.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.instance == nil || o.instance.ID == "" {
		return
	}
	l.ids = append(l.ids, o.instance.ID)
	if o.err == nil {
		delete(l.lost, c.key)
	}
}

// take returns everything in the ledger and empties it.
func (l *ledger) take() (ids []string, lost map[string]creation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids, lost = l.ids, l.lost
	l.ids, l.lost = nil, nil
	return ids, lost
}

func (l *ledger) balances(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.balancers = append(l.balancers, key)
}

func (l *ledger) takeBalancers() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := l.balancers
	l.balancers = nil
	return keys
}

// lostDisk and lostSnapshot note that there may be one whose id nobody knows.
func (l *ledger) lostDisk() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.diskLost = true
}

func (l *ledger) lostSnapshot() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.snapshotLost = true
}

func (l *ledger) disk(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.disks = append(l.disks, id)
}

func (l *ledger) snapshot(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.snapshots = append(l.snapshots, id)
}

// takeDisks and takeSnapshots return the ids, which are removed from the ledger, and
// whether there may be others.
func (l *ledger) takeDisks() (ids []string, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids, lost = l.disks, l.diskLost
	l.disks, l.diskLost = nil, false
	return ids, lost
}

func (l *ledger) takeSnapshots() (ids []string, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids, lost = l.snapshots, l.snapshotLost
	l.snapshots, l.snapshotLost = nil, false
	return ids, lost
}
