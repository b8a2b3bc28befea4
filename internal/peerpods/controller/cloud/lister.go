// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Snapshot is what a provider listed of this cluster.
type Snapshot struct {
	// Began is when the list was asked for: what was deleted before must not
	// be in it any more.
	Began     time.Time
	Instances []provider.Instance

	byKey map[string][]*provider.Instance
	byID  map[string]*provider.Instance
}

func newSnapshot(began time.Time, list []provider.Instance, owner map[string]string) *Snapshot {
	s := &Snapshot{Began: began, byKey: make(map[string][]*provider.Instance, len(list)), byID: make(map[string]*provider.Instance, len(list))}
	for i := range list {
		// The list is not trusted: instances without our tags are dropped.
		if list[i].Key != "" && provider.HasTags(list[i].Tags, owner) {
			s.Instances = append(s.Instances, list[i])
		}
	}
	for i := range s.Instances {
		instance := &s.Instances[i]
		s.byKey[instance.Key] = append(s.byKey[instance.Key], instance)
		s.byID[instance.ID] = instance
	}
	return s
}

// OfKey returns the instances created with a key, in the cloud's order.
func (s *Snapshot) OfKey(key string) []*provider.Instance {
	if s == nil || key == "" {
		return nil
	}
	return s.byKey[key]
}

// OfID returns one instance, nil when it is not there.
func (s *Snapshot) OfID(id string) *provider.Instance {
	if s == nil {
		return nil
	}
	return s.byID[id]
}

// maxListPause is the longest pause after lists that failed.
const maxListPause = time.Minute

// lister shares each list among all callers. It lists only while a caller needs
// a list that began later than the last one did.
type lister struct {
	cloud *Cloud

	mu      sync.Mutex
	latest  *Snapshot
	err     error // of the last list; nil when it succeeded
	began   time.Time
	wanted  time.Time // somebody wants a list begun after this
	running bool
	ended   chan struct{} // closed when the next list has ended
	pause   time.Duration // after failures
}

// Latest returns the newest list, nil if there was none yet. The error is that
// of the last attempt, which began at the returned time.
func (c *Cloud) Latest() (*Snapshot, time.Time, error) {
	c.lists.mu.Lock()
	defer c.lists.mu.Unlock()
	return c.lists.latest, c.lists.began, c.lists.err
}

// Want requests a list that begins after t. Options.Listed is called when it
// has ended, also if it failed.
func (c *Cloud) Want(t time.Time) {
	c.lists.mu.Lock()
	defer c.lists.mu.Unlock()
	c.lists.want(t)
}

// Fresh waits for a list that began after t.
func (c *Cloud) Fresh(ctx context.Context, t time.Time) (*Snapshot, error) {
	for {
		snapshot, ended, err := c.lists.after(t)
		if snapshot != nil || err != nil {
			return snapshot, err
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.owner.ctx.Done():
			return nil, c.owner.ctx.Err()
		}
	}
}

func (l *lister) after(t time.Time) (*Snapshot, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.latest != nil && l.latest.Began.After(t) {
		return l.latest, nil, nil
	}
	if l.err != nil && l.began.After(t) {
		return nil, nil, l.err
	}
	l.want(t)
	return nil, l.ended, nil
}

// want requires the lock.
func (l *lister) want(t time.Time) {
	if t.After(l.wanted) {
		l.wanted = t
	}
	if !l.running && l.cloud.owner.ctx.Err() == nil {
		l.running = true
		l.cloud.owner.work.Go(l.run)
	}
}

// run lists until no later list is needed.
func (l *lister) run() {
	for more := true; more; {
		if !l.sleep() {
			return
		}
		began := l.cloud.owner.options.Now()
		list, err := l.cloud.list(l.cloud.owner.ctx)
		more = l.store(began, list, err)
		l.cloud.owner.options.Listed(l.cloud.Name)
	}
}

// sleep waits until the next list may begin; false when all ends.
func (l *lister) sleep() bool {
	o := &l.cloud.owner.options
	l.mu.Lock()
	wait := max(o.ListInterval, l.pause) - o.Now().Sub(l.began)
	l.mu.Unlock()
	return poll.Sleep(l.cloud.owner.ctx, max(wait, 0)) == nil
}

// store saves the result and reports whether another list is needed.
func (l *lister) store(began time.Time, list []provider.Instance, err error) bool {
	o := &l.cloud.owner.options
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.err = began, err
	if err == nil {
		l.latest, l.pause = newSnapshot(began, list, o.Owner), 0
	} else {
		l.pause = min(max(2*l.pause, 2*o.ListInterval), maxListPause)
	}
	close(l.ended)
	l.ended = make(chan struct{})
	l.running = err == nil && !began.After(l.wanted)
	return l.running
}
