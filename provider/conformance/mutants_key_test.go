// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	stderrors "errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// another makes an instance of its own for a key that has one.
func another(when func(b *broken, q request) bool) breakage {
	return all(around(func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		if when(b, q) {
			q.key += unique()
		}
		return create(ctx, q)
	}), keysByTag)
}

var keyMutants = []mutant{
	{name: "the tenth call makes another", breaks: another(func(b *broken, q request) bool { return b.count("calls "+q.key, 1) == 10 }),
		fails: map[string]string{"key-repeated": "two instances"}},
	{name: "five at once in a process make two", boots: true, breaks: inFlight(func(b *broken, q request) bool {
		return b.count("running in "+b.process+" "+q.key, 0) > 4
	}), fails: map[string]string{"key-concurrent": "two instances"}},
	{name: "processes race", boots: true, breaks: inFlight(func(b *broken, q request) bool {
		return b.count("running "+q.key, 0) > b.count("running in "+b.process+" "+q.key, 0)
	}), fails: map[string]string{"key-concurrent-processes": "two instances"}},
	{name: "key checked, then used", boots: true, breaks: lookThenMake,
		fails: map[string]string{"key-concurrent": "two instances", "key-concurrent-processes": "two instances"}},
	{name: "key known to its process while it lives", breaks: all(another(func(b *broken, q request) bool {
		owner := b.marked("process of " + q.key)
		if owner == "" {
			b.mark("process of "+q.key, b.process)
			owner = b.process
		}
		return owner != b.process && b.marked("closed "+owner) == ""
	}), remembersIDs), fails: map[string]string{"key-reopened": "two instances", "key-concurrent-processes": "two instances"}},
	{name: "key of an idle process unknown", boots: true, breaks: all(another(func(b *broken, q request) bool {
		owner := b.marked("finished " + q.key)
		return owner != "" && owner != b.process && b.marked("closed "+owner) == ""
	}), around(func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		instance, err := create(ctx, q)
		if b.marked("finished "+q.key) == "" {
			b.mark("finished "+q.key, b.process)
		}
		return instance, err
	}), remembersIDs), fails: map[string]string{"key-reopened": "two instances"}},
	{name: "double after a lost reply", breaks: all(around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		if cutShort(ctx) {
			q.key += unique()
			_, err := create(context.WithoutCancel(ctx), q)
			return nil, stderrors.Join(provider.ErrUnavailable, err)
		}
		return create(ctx, q)
	}), keysByTag), fails: map[string]string{"key-lost-reply": "2 instances have the key"}},
	{name: "one address after the other", boots: true, breaks: around(func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		first, of, _ := strings.Cut(b.marked("first address"), " of ")
		instance, err := create(ctx, q)
		if err != nil || cutShort(ctx) {
			return instance, err
		}
		switch {
		case first == "" && b.marked("first address") == "":
			b.mark("first address", fmt.Sprintf("%s of %.8s", instance.IPs[0], q.key))
		case first != "" && !strings.HasPrefix(q.key, of):
			instance.IPs[0] = netip.MustParseAddr(first)
		}
		return instance, err
	}), fails: map[string]string{"key-different": "have the address"}},
	{name: "60 characters of a key", breaks: all(changedRequest(func(q *request) { q.key = q.key[:min(len(q.key), 60)] }), keysByTag),
		fails: map[string]string{"key-similar": "two instances have the id"}},
	{name: "a key for the empty one", breaks: changedRequest(func(q *request) {
		if q.key == "" {
			q.key = "default"
		}
	}), fails: map[string]string{"key-empty": "returned"}},
	{name: "keys of 64 characters only", breaks: refused(provider.ErrInvalidArgument, func(q request) bool { return len(q.key) != 64 }),
		fails: map[string]string{"key-uuid": "refused"}},
	{name: "keys without underscores only", breaks: refused(provider.ErrInvalidArgument, func(q request) bool { return strings.Contains(q.key, "_") }),
		fails: map[string]string{"key-odd": "refused"}},
	{name: "another for another size", breaks: another(func(_ *broken, q request) bool { return q.spec.VCPUs > 0 && q.spec.Memory > 0 && q.spec.VCPUs < 64 }),
		fails: map[string]string{"key-other-spec": "two instances"}},
	{name: "another size of another class", breaks: changedError(func(q request, err error) error {
		if provider.Class(err) == provider.ErrAlreadyExists {
			return failure(err.Error(), provider.ErrInvalidArgument)
		}
		return err
	}), fails: map[string]string{"key-other-spec": "has class"}},
	{name: "key remembered for ever", breaks: remembersKeys, fails: map[string]string{"key-after-delete": "0 instances have the key"}},
	{name: "key of an error taken", breaks: around(func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		if b.marked("failed "+q.key) != "" {
			return nil, failure("a sandbox of this id has failed", provider.ErrAlreadyExists)
		}
		instance, err := create(ctx, q)
		if err != nil && !provider.Retryable(err) {
			b.mark("failed "+q.key, "yes")
		}
		return instance, err
	}), fails: map[string]string{"key-after-error": "has failed"}},
	{name: "another beside a stopped one", breaks: all(remembersIDs, another(func(b *broken, q request) bool {
		list, _ := b.Cloud.ListInstances(context.Background(), map[string]string{provider.TagKey: q.key})
		return len(list) == 1 && list[0].State == provider.StateStopped
	})), fails: map[string]string{"key-stopped": "two instances"}},
}

// inFlight makes another instance when that many calls are under way.
func inFlight(when func(b *broken, q request) bool) breakage {
	return all(around(func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		key := q.key
		b.count("running "+key, 1)
		b.count("running in "+b.process+" "+key, 1)
		time.Sleep(time.Millisecond) // until all have counted
		if when(b, q) {
			q.key += unique()
		}
		instance, err := create(ctx, q)
		b.count("running "+key, -1)
		b.count("running in "+b.process+" "+key, -1)
		return instance, err
	}), keysByTag)
}

// lookThenMake looks which name the key has in the cloud and takes a new one
// if there is none: right unless two calls race.
func lookThenMake(b *broken) {
	all(around(func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		key := q.key
		if q.key != "" {
			q.key = b.marked("name of " + key)
			if q.key == "" {
				q.key = key + unique()
			}
		}
		instance, err := create(ctx, q)
		if err == nil {
			b.mark("name of "+key, q.key)
		}
		return instance, err
	}), keysByTag)(b)
}

// remembersKeys replies from memory, whatever has happened since.
func remembersKeys(b *broken) {
	known := map[string]provider.Instance{}
	around(func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		b.mu.Lock()
		instance, ok := known[q.key]
		b.mu.Unlock()
		if ok && q.spec.VCPUs == 0 {
			return &instance, nil
		}
		made, err := create(ctx, q)
		if err == nil {
			b.mu.Lock()
			known[q.key] = *made
			b.mu.Unlock()
		}
		return made, err
	})(b)
}
