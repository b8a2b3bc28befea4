// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/outrigger/outrigger/provider"
)

// The kinds of resources that have a name of their own here. A cloud may have
// more.
const (
	KindInstance = "instance"
	KindNIC      = "nic"
	KindAddress  = "address"
	KindDisk     = "disk"
)

// Resource is something that costs money while it exists.
type Resource struct {
	Kind string
	// ID is the cloud's own, unique among those of the kind.
	ID   string
	Tags map[string]string
	// Foreign resources are somebody else's: who deletes one is wrong.
	Foreign bool
	// Deleting ones are on their way out: another with the key is not a double.
	Deleting bool
}

// Key is the idempotency key in the tags.
func (r Resource) Key() string { return r.Tags[provider.TagKey] }

func (r Resource) String() string {
	return fmt.Sprintf("%s %s (key %q)", r.Kind, r.ID, r.Key())
}

type resourceID struct{ kind, id string }

// World is the books of one simulated cloud. Its methods are safe for
// concurrent use.
type World struct {
	mu         sync.Mutex
	resources  map[resourceID]*Resource
	hidden     map[resourceID]int
	lag        int
	violations []string
	faults     []*Fault
	calls      map[string]int
	tape       *tape // of a benchmark
}

// NewWorld returns an empty one, without faults and without lag.
func NewWorld() *World {
	return &World{resources: map[resourceID]*Resource{}, hidden: map[resourceID]int{}, calls: map[string]int{}}
}

// Add writes a new resource into the ledger.
func (w *World) Add(kind, id string, tags map[string]string) {
	w.add(Resource{Kind: kind, ID: id, Tags: tags})
}

// AddForeign writes somebody else's resource into the ledger.
func (w *World) AddForeign(kind, id string, tags map[string]string) {
	w.add(Resource{Kind: kind, ID: id, Tags: tags, Foreign: true})
}

func (w *World) add(r Resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := resourceID{r.Kind, r.ID}
	if w.resources[at] != nil {
		w.violate("%s was made although it exists", r)
		return
	}
	r.Tags = maps.Clone(r.Tags)
	w.resources[at] = &r
	w.hidden[at] = w.lag
	w.lookForDouble(&r)
}

// Tag adds tags to a resource.
func (w *World) Tag(kind, id string, tags map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.resources[resourceID{kind, id}]
	if r == nil {
		return
	}
	if r.Foreign {
		w.violate("%s is somebody else's and was tagged", r)
	}
	if r.Tags == nil {
		r.Tags = map[string]string{}
	}
	maps.Copy(r.Tags, tags)
	w.lookForDouble(r)
}

// lookForDouble notes when two instances that stay have one key.
func (w *World) lookForDouble(r *Resource) {
	if r.Kind != KindInstance || r.Key() == "" || r.Foreign {
		return
	}
	for _, other := range w.resources {
		if other != r && other.Kind == r.Kind && other.Key() == r.Key() && !other.Foreign && !other.Deleting {
			w.violate("two instances of one key: %s and %s", other, r)
		}
	}
}

// Deleting says that the cloud has accepted to remove a resource.
func (w *World) Deleting(kind, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.resources[resourceID{kind, id}]; r != nil {
		w.removing(r)
		r.Deleting = true
	}
}

// Remove takes a resource out of the ledger: it costs nothing any more.
func (w *World) Remove(kind, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := resourceID{kind, id}
	if r := w.resources[at]; r != nil {
		w.removing(r)
		delete(w.resources, at)
		delete(w.hidden, at)
	}
}

func (w *World) removing(r *Resource) {
	if r.Foreign && !r.Deleting {
		w.violate("%s is somebody else's and was deleted", r)
	}
}

func (w *World) violate(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// Violations returns what should never have happened, in order: doubles,
// deletions of foreign resources.
func (w *World) Violations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.violations)
}

// Resources returns what exists, foreign ones too, sorted by kind and id.
func (w *World) Resources() []Resource {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]Resource, 0, len(w.resources))
	for _, r := range w.resources {
		r := *r
		r.Tags = maps.Clone(r.Tags)
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Resource) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID)) })
	return all
}

// Own returns what exists and is not foreign.
func (w *World) Own() []Resource {
	return slices.DeleteFunc(w.Resources(), func(r Resource) bool { return r.Foreign })
}

// SetLag makes resources that are made from now on invisible to so many reads
// of [World.Visible], as in an eventually consistent cloud.
func (w *World) SetLag(reads int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lag = reads
}

// Visible counts a read of a resource and reports whether it shows it.
func (w *World) Visible(kind, id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := resourceID{kind, id}
	if w.hidden[at] > 0 {
		w.hidden[at]--
		return false
	}
	return w.resources[at] != nil
}
