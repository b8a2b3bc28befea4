// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

// absent is the id that the suite takes for one that does not exist.
const absent = "outrigger-no-such-instance"

var deleteMutants = []mutant{
	{name: "the disk goes later", breaks: diskStays, fails: map[string]string{"delete": "left behind after DeleteInstance"}},
	{name: "the tenth deletion fails", breaks: aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if id != absent && b.count("deletions "+id, 1) == 10 {
			return failure("gone for good", provider.ErrNotFound)
		}
		return remove(ctx, id)
	}), fails: map[string]string{"delete-repeated": "gone for good"}},
	{name: "deleting is an error", breaks: oneAtATime(func(id string) string { return id }), fails: map[string]string{"delete-concurrent": "is being deleted"}},
	{name: "what never was is an error", breaks: all(aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if id == absent {
			return failure(id, provider.ErrNotFound)
		}
		return remove(ctx, id)
	}), remembersIDs), fails: map[string]string{"delete-absent": "not found"}},
	{name: "empty id of another class", breaks: aroundDelete(func(_ *broken, ctx context.Context, id string, remove deleter) error {
		if id == "" {
			return provider.ErrNotFound
		}
		return remove(ctx, id)
	}), fails: map[string]string{"delete-empty-id": "has class"}},
	{name: "the empty id is nothing", breaks: aroundDelete(func(_ *broken, ctx context.Context, id string, remove deleter) error {
		if id == "" {
			return nil
		}
		return remove(ctx, id)
	}), fails: map[string]string{"delete-empty-id": "no error"}},
	{name: "a process deletes its own while others live", breaks: all(remembersIDs, aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if b.made(id) && !b.mine(id) && !b.makerClosed(id) && b.letIn() {
			return nil
		}
		return remove(ctx, id)
	})), fails: map[string]string{"delete-reopened": "still shows"}},
	{name: "pending is an error", boots: true, breaks: aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if i, err := b.Cloud.GetInstance(ctx, id); err == nil && i.State == provider.StatePending {
			return fmt.Errorf("%w: instance %s is still being made", provider.ErrInvalidArgument, id)
		}
		return remove(ctx, id)
	}), fails: map[string]string{"delete-while-creating": "still being made"}},
	{name: "ids are trimmed", breaks: aroundDelete(func(_ *broken, ctx context.Context, id string, remove deleter) error {
		return remove(ctx, strings.TrimSpace(id))
	}), fails: map[string]string{"delete-garbage": "does not show"}},
	{name: "ids are paths", breaks: aroundDelete(func(_ *broken, ctx context.Context, id string, remove deleter) error {
		if strings.Contains(id, "/") {
			return failure("open "+id, provider.ErrUnavailable)
		}
		return remove(ctx, id)
	}), fails: map[string]string{"delete-garbage": "open ../"}},
	{name: "deletes the pod's", breaks: aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if i, err := b.Cloud.GetInstance(ctx, id); err == nil {
			list, _ := b.Cloud.ListInstances(ctx, map[string]string{provider.TagPod: i.Tags[provider.TagPod]})
			for _, other := range list {
				remove(ctx, other.ID)
			}
		}
		return remove(ctx, id)
	}), fails: map[string]string{"delete-others": "does not show"}},
	{name: "one deletion at a time", breaks: oneAtATime(func(string) string { return "any" }), fails: map[string]string{"delete-parallel": "is being deleted",
		"delete-concurrent": "is being deleted"}},
	{name: "one instance at a time", breaks: oneInstanceAtATime, fails: map[string]string{"delete-parallel": "is being deleted"}},
	{name: "stopped is an error at first", breaks: aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if b.stopped(id) && b.count("stopped "+id, 1) == 1 {
			return failure("the instance is off", provider.ErrUnavailable)
		}
		return remove(ctx, id)
	}), fails: map[string]string{"delete-stopped": "the instance is off"}},
	{name: "nobody looks, so it is gone", breaks: aroundDelete(func(_ *broken, ctx context.Context, id string, remove deleter) error {
		return withoutAccess(remove(ctx, id), nil)
	}), fails: map[string]string{"delete-no-access": "no error"}},
	{name: "the credential is not found", breaks: aroundDelete(func(_ *broken, ctx context.Context, id string, remove deleter) error {
		return withoutAccess(remove(ctx, id), fmt.Errorf("%w: no such application credential", provider.ErrNotFound))
	}), fails: map[string]string{"delete-no-access": `has class "not found"`}},
	{name: "four deletions, then no more", breaks: all(remembersIDs, around(func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		if b.count("deleted", 0) >= 4 {
			return nil, failure("no address left", provider.ErrQuota)
		}
		return create(ctx, q)
	}), aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if b.made(id) && !b.gone(id) {
			b.count("deleted", 1)
		}
		return remove(ctx, id)
	})), fails: map[string]string{"delete-rounds": "no address left"}},
}

// withoutAccess replaces what calls answer that the cloud did not let in.
func withoutAccess(err, instead error) error {
	if errors.Is(err, provider.ErrUnauthenticated) {
		return instead
	}
	return err
}

// diskStays leaves the disk of the first instance that is deleted while it
// runs, until another is made or a little longer than the suite waits.
func diskStays(b *broken) {
	sweep := func() { b.Reopen().DeleteInstance(context.Background(), b.marked("disk of")) }
	remembersIDs(b)
	aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if b.made(id) && !b.stopped(id) && ctx.Err() == nil && b.marked("disk of") == "" && b.letIn() {
			b.mark("disk of", id)
			b.Inject(fake.PartialDelete())
			remove(ctx, id)
			time.AfterFunc(settle+settle/2, sweep)
			return nil
		}
		return remove(ctx, id)
	})(b)
	around(func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		if b.marked("disk of") != "" {
			sweep()
		}
		return create(ctx, q)
	})(b)
}

// oneAtATime refuses to delete what is being deleted, by name.
func oneAtATime(name func(id string) string) breakage {
	return aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		what := "deleting " + name(id)
		defer b.count(what, -1)
		if b.count(what, 1) > 1 {
			return failure("an instance is being deleted", nil)
		}
		<-time.After(busyTime)
		return remove(ctx, id)
	})
}

// oneInstanceAtATime lets one instance be deleted at a time, by any number.
func oneInstanceAtATime(b *broken) {
	var mu sync.Mutex
	var busy string
	var callers int
	enter := func(id string) bool {
		mu.Lock()
		defer mu.Unlock()
		if callers > 0 && busy != id {
			return false
		}
		busy = id
		callers++
		return true
	}
	leave := func() {
		mu.Lock()
		defer mu.Unlock()
		callers--
	}
	aroundDelete(func(_ *broken, ctx context.Context, id string, remove deleter) error {
		if !enter(id) {
			return failure("another instance is being deleted", provider.ErrUnavailable)
		}
		defer leave()
		<-time.After(busyTime)
		return remove(ctx, id)
	})(b)
}
