// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// Call is a finished call to the provider.
type Call struct {
	Operation string
	Took      time.Duration
	Err       error
}

// fleet calls the provider, with a timeout and metrics.
type fleet struct {
	options *Options
	lister  provider.Lister
	getter  provider.Getter

	// listing is a lock, a channel of capacity 1: callers wait for a list that is under
	// way and share it.
	listing chan struct{}
	mu      sync.Mutex
	last    *inventory    // written with both locks
	getTook time.Duration // of the last look-up
	// clusters are the values of provider.TagCluster that instances of Nodes
	// have had.
	clusters map[string]bool
}

// inventory is a list of the cluster's instances.
type inventory struct {
	at   time.Time // when it was asked for
	took time.Duration
	byID map[string]*provider.Instance
}

func call[T any](ctx context.Context, f *fleet, operation string, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, f.options.CallTimeout)
	defer cancel()
	began := time.Now()
	result, err := do(ctx)
	f.options.Observe(Call{Operation: operation, Took: time.Since(began), Err: err})
	if err != nil {
		err = fmt.Errorf("%s at provider %s: %w", operation, f.options.Name, err)
	}
	return result, err
}

func (f *fleet) slowness() (list, get time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil {
		list = f.last.took
	}
	return list, f.getTook
}

func (f *fleet) get(ctx context.Context, id string) (*provider.Instance, error) {
	began := f.options.Now()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.getTook = f.options.Now().Sub(began)
	}()
	instance, err := call(ctx, f, "get", func(ctx context.Context) (*provider.Instance, error) {
		instance, err := f.getter.GetInstance(ctx, id)
		if err == nil && (instance == nil || instance.ID != id) {
			// Such a reply does not mean that the instance does not exist.
			err = fmt.Errorf("%w: the answer to instance %q is %+v", provider.ErrUnknown, id, instance)
		}
		return instance, err
	})
	if err != nil {
		return nil, err
	}
	f.learn(instance)
	return instance, nil
}

// learn records the tag of the cluster's instances.
func (f *fleet) learn(i *provider.Instance) {
	if cluster := i.Tags[provider.TagCluster]; cluster != "" {
		f.mu.Lock()
		f.clusters[cluster] = true
		f.mu.Unlock()
	}
}

// matches returns the sets of tags by which the cluster's instances are listed. There
// are none if tags are neither configured nor learned.
func (f *fleet) matches() []map[string]string {
	if len(f.options.Tags) > 0 {
		return []map[string]string{f.options.Tags}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []map[string]string
	for _, cluster := range slices.Sorted(maps.Keys(f.clusters)) {
		all = append(all, map[string]string{provider.TagCluster: cluster})
	}
	return all
}

var errNoTags = errors.New("it is not known by which tags the cluster's instances are listed: give --instance-tags, such as outrigger-cluster=NAME, or start kubelets with --provider-id")

// recent returns a list that was completed at most ListAge ago. Its age begins when it
// is complete: otherwise each Node would have a slow cloud list again.
func (f *fleet) recent(ctx context.Context) (*inventory, error) {
	return f.listUnless(ctx, func(list *inventory) bool {
		now := f.options.Now()
		return !list.at.After(now) && now.Sub(list.at.Add(list.took)) <= f.options.ListAge
	})
}

// since returns a list that was requested at that time or later.
func (f *fleet) since(ctx context.Context, at time.Time) (*inventory, error) {
	return f.listUnless(ctx, func(list *inventory) bool { return !list.at.Before(at) })
}

// listUnless returns the last list if usable accepts it, else it lists again.
func (f *fleet) listUnless(ctx context.Context, usable func(*inventory) bool) (*inventory, error) {
	select {
	case f.listing <- struct{}{}:
		defer func() { <-f.listing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", provider.ErrUnavailable, ctx.Err())
	}
	if f.last != nil && usable(f.last) {
		return f.last, nil
	}
	list, err := f.list(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = list
	return list, nil
}

func (f *fleet) list(ctx context.Context) (*inventory, error) {
	matches := f.matches()
	if len(matches) == 0 {
		return nil, fmt.Errorf("%w: %w", provider.ErrInvalidArgument, errNoTags)
	}
	list := &inventory{at: f.options.Now(), byID: map[string]*provider.Instance{}}
	for _, match := range matches {
		some, err := call(ctx, f, "list", func(ctx context.Context) ([]provider.Instance, error) {
			return f.lister.ListInstances(ctx, match)
		})
		if err != nil {
			return nil, err
		}
		for _, i := range some {
			if i.ID != "" && provider.HasTags(i.Tags, match) {
				list.byID[i.ID] = &i
			}
		}
	}
	list.took = f.options.Now().Sub(list.at)
	if list.took > f.options.ListAge {
		slog.Warn("the cloud takes long to list instances; Nodes whose instances are gone are deleted later", "provider", f.options.Name, "took", list.took, "instances", len(list.byID))
	}
	return list, nil
}

// lookUp returns an instance from a recent list, which is one call for all Nodes, or
// else asks the cloud for it.
func (f *fleet) lookUp(ctx context.Context, id string) (*provider.Instance, error) {
	if len(f.matches()) > 0 {
		list, err := f.recent(ctx)
		if err != nil {
			return nil, err
		}
		if i := list.byID[id]; i != nil {
			return i, nil
		}
	}
	return f.get(ctx, id)
}
