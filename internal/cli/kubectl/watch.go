// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/internal/kubeapi"
)

const (
	// watchAgain is how long after its end a watch begins again.
	watchAgain = time.Second
	// refusedAgain is after what time something is asked for again that the API server has refused.
	refusedAgain = 10 * time.Second
)

// collection is what the API server has of one kind, as far as Follow has seen.
type collection[T any] struct {
	c      *cluster
	kind   string // its plural, for people
	at     string
	params map[string]string
	meta   func(*T) *metav1.ObjectMeta

	mu    sync.Mutex
	items map[string]*T // by namespace/name; objects are replaced and never changed
	read  bool
	err   error
}

// all returns the objects, by namespace and name.
func (x *collection[T]) all() []*T {
	x.mu.Lock()
	defer x.mu.Unlock()
	objects := make([]*T, 0, len(x.items))
	for _, key := range slices.Sorted(maps.Keys(x.items)) {
		objects = append(objects, x.items[key])
	}
	return objects
}

// State implements ui.Source.
func (x *collection[T]) State() (read bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.err == nil:
		return x.read, nil
	case apierrors.IsNotFound(x.err):
		err = unknownKind(x.kind, x.err)
	case apierrors.ReasonForError(x.err) == metav1.StatusReasonUnknown: // it is not the API server's
		err = fmt.Errorf("%s: the API server does not answer: %w", x.kind, x.err)
	default:
		err = fmt.Errorf("%s: %s", x.kind, explain(x.err))
	}
	return x.read, err
}

// Follow implements ui.Source: it lists the collection, and applies what a watch tells, until ctx ends. changed is called
// after each change and when the API server begins or ceases to answer.
func (x *collection[T]) Follow(ctx context.Context, changed func()) {
	for version := ""; ctx.Err() == nil; {
		var err error
		if version == "" {
			version, err = x.list(ctx)
		}
		if err == nil {
			version, err = x.watch(ctx, version, changed)
		}
		wait := watchAgain
		if err != nil && ctx.Err() == nil {
			x.fails(err)
			changed()
			if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
				wait = refusedAgain
			}
		}
		pause(ctx, wait)
	}
}

func (x *collection[T]) fails(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.err = err
}

// list replaces all objects, and returns the version after which a watch begins.
func (x *collection[T]) list(ctx context.Context) (version string, err error) {
	objects, version, err := kubeapi.ListVersion[T](ctx, x.c.Client, x.at, x.params)
	if err != nil {
		return "", err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.items, x.read, x.err = make(map[string]*T, len(objects)), true, nil
	for i := range objects {
		x.set(&objects[i], false)
	}
	return version, nil
}

// set puts or removes an object; x.mu is held.
func (x *collection[T]) set(object *T, gone bool) {
	m := x.meta(object)
	m.ManagedFields = nil // half of an object, and nobody reads it
	key := m.Namespace + "/" + m.Name
	if delete(x.items, key); !gone {
		x.items[key] = object
	}
}

// watch applies changes until the API server ends the watch, or the client's timeout does. It returns the version after
// which the next one goes on, or none if the objects have to be listed again.
func (x *collection[T]) watch(ctx context.Context, version string, changed func()) (string, error) {
	params := map[string]string{"resourceVersion": version, "allowWatchBookmarks": "true"}
	maps.Copy(params, x.params)
	stream, err := x.c.Watch(ctx, x.at, params)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return "", nil
	}
	if err != nil {
		return version, err
	}
	defer stream.Close()
	x.fails(nil)
	changed()
	for events := json.NewDecoder(stream); ; changed() {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if events.Decode(&event) != nil {
			return version, nil
		}
		object := new(T)
		if json.Unmarshal(event.Object, object) != nil || event.Type == "ERROR" { // such as: the version is too old
			return "", nil
		}
		version = cmp.Or(x.meta(object).ResourceVersion, version)
		if event.Type != "BOOKMARK" {
			x.mu.Lock()
			x.set(object, event.Type == "DELETED")
			x.mu.Unlock()
		}
	}
}

// changes returns a channel that is readable after objects of one of the collections have changed, and each time a
// watch begins or is refused: a reader that then looks at all misses nothing.
func (c *cluster) changes(ctx context.Context, collections ...string) <-chan struct{} {
	changed := make(chan struct{}, 1)
	say := func() {
		select {
		case changed <- struct{}{}:
		default: // the reader has not seen the one before, and will look at all
		}
	}
	for _, at := range collections {
		watched := &collection[object]{c: c, at: at, items: map[string]*object{}, meta: func(o *object) *metav1.ObjectMeta { return &o.Metadata }}
		go func() {
			for ctx.Err() == nil {
				if _, err := watched.watch(ctx, "", say); err != nil {
					say()
				}
				pause(ctx, watchAgain)
			}
		}()
	}
	return changed
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
