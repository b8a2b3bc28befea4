// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/fake"
)

var otherMutants = []mutant{
	{name: "verify fails", breaks: func(b *broken) { b.verify = func() error { return failure("no network", nil) } },
		fails: map[string]string{"verify": "no network", "verify-repeated": "no network", "cancel-verify": "no network"}},
	{name: "verify leaves an instance until the next call", breaks: verifyLeaves, fails: map[string]string{"verify": "left behind by ConfigVerifier"}, leaves: true},
	{name: "verify at the same time clashes", breaks: func(b *broken) {
		b.verify = func() error {
			defer b.count("verify", -1)
			if b.count("verify", 1) > 1 {
				return failure("the interface is there", nil)
			}
			<-time.After(busyTime)
			return nil
		}
	}, fails: map[string]string{"verify-repeated": "the interface is there"}},
	{name: "verify tidies up", breaks: func(b *broken) { b.verify = b.deleteEverything }, fails: map[string]string{"verify-harmless": "does not show"}},
	{name: "teardown deletes", breaks: func(b *broken) { b.teardown = b.deleteEverything },
		fails: map[string]string{"teardown": "not found", "list-reopened": "does not show"}},
	{name: "teardown forgets keys", breaks: all(remembersIDs, another(func(b *broken, q request) bool {
		process := b.marked("process of " + q.key)
		if process == "" {
			b.mark("process of "+q.key, b.process)
		}
		return process != "" && b.marked("closed "+process) != ""
	})), fails: map[string]string{"teardown": "two instances"}},
	{name: "teardown fails", breaks: func(b *broken) { b.teardown = func() error { return failure("still busy", nil) } },
		fails: map[string]string{"teardown": "still busy", "create": "still busy"}, also: names(conformance.Checks())},
	{name: "calls after teardown hang", breaks: func(b *broken) {
		list, teardown := b.list, b.teardown
		b.list = func(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
			if b.marked("closed "+b.process) != "" {
				b.hang()
			}
			return list(ctx, match)
		}
		b.teardown = func() error {
			b.mark("closed "+b.process, "yes")
			return teardown()
		}
	}, fails: map[string]string{"teardown-then-calls": "ListInstances after its context ended: no return within"}},
	{name: "calls after teardown panic", breaks: func(b *broken) {
		get := b.get
		b.get = func(ctx context.Context, id string) (*provider.Instance, error) {
			if b.marked("closed "+b.process) != "" {
				panic("send on closed channel")
			}
			return get(ctx, id)
		}
		b.teardown = func() error {
			b.mark("closed "+b.process, "yes")
			return nil
		}
	}, fails: map[string]string{"teardown-then-calls": "GetInstance: panic: send on closed channel"}},
}

func verifyLeaves(b *broken) {
	sweep := func() bool {
		id := b.marked("probe")
		b.mark("probe", "swept")
		b.Cloud.DeleteInstance(context.Background(), id)
		return id != ""
	}
	b.verify = func() error {
		if sweep() {
			return nil
		}
		i, err := b.Cloud.CreateInstance(context.Background(), "probe", unique(), cloudinit.Raw(""), provider.InstanceTypeSpec{})
		if err == nil {
			b.mark("probe", i.ID)
		}
		return err
	}
	around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		if b.marked("probe") != "" {
			sweep()
		}
		return create(ctx, q)
	})(b)
}

func (b *broken) deleteEverything() error {
	lines, err := b.Leaks()
	for _, line := range lines {
		if err == nil {
			err = b.Cloud.DeleteInstance(context.Background(), line.Instance)
		}
	}
	return err
}

func names(checks []conformance.Check) []string {
	var list []string
	for _, check := range checks {
		list = append(list, check.Name)
	}
	return list
}

// refusals are the checks of creations that must fail, and nothing else.
var refusals = []string{
	"create-user-data-error", "create-unknown-type", "create-unknown-image", "create-size-huge", "create-size-negative",
	"create-unknown-arch", "create-unknown-gpu", "create-unknown-zone", "key-empty", "error-names-type", "error-names-image",
}

// idle are the checks that create no instance.
var idle = append(idleDisks, []string{
	"cancel-reads", "cancel-open", "cancel-verify", "cancel-teardown", "delete-absent", "delete-empty-id", "list-empty-match", "get-absent", "get-garbage", "console-absent", "power-absent",
	"types", "types-repeated", "node-address", "node-address-repeated", "verify", "verify-repeated", "teardown-then-calls",
	"balancer", "balancer-repeated", "balancer-concurrent", "balancer-reopened", "balancer-lost-reply", "balancer-ports", "balancer-refused", "balancer-absent",
	"balancer-list", "balancer-list-others", "balancer-list-empty-match", "balancer-delete", "balancer-delete-absent", "balancer-delete-no-access", "balancer-after-delete",
	"list-no-access",
}...)

// idleDisks are those of disks and snapshots.
var idleDisks = slices.DeleteFunc(names(conformance.Checks()), func(name string) bool {
	withInstance := []string{"disk-delete-attached", "disk-resize-attached", "snapshot-attached"}
	return !strings.HasPrefix(name, "disk") && !strings.HasPrefix(name, "snapshot") || slices.Contains(withInstance, name)
})

// allBut are the names of all other checks.
func allBut(without ...string) []string {
	return slices.DeleteFunc(names(conformance.Checks()), func(name string) bool { return slices.Contains(without, name) })
}

// making are the checks that make an instance.
var making = allBut(slices.Concat(idle, refusals, []string{"cancel-before"})...)

// broadMutants break what many promises rest on.
var broadMutants = []mutant{
	{name: "answers nothing", breaks: func(b *broken) {
		b.create = func(context.Context, request) (*provider.Instance, error) { return nil, nil }
	}, fails: map[string]string{"create": "neither", "create-parallel": "returned <nil>", "cancel-midway": "neither"},
		also: allBut(slices.Concat(idle, []string{"cancel-before", "error-names-type", "error-names-image"})...)},
	{name: "panics", breaks: func(b *broken) {
		b.create = func(context.Context, request) (*provider.Instance, error) { panic("no such map") }
	}, fails: map[string]string{"create": "panic: no such map", "cancel-before": "panic: no such map"}, also: allBut(idle...)},
	{name: "no id", breaks: changedInstance(func(i *provider.Instance) { i.ID = "" }), fails: map[string]string{"create": "without an id"}, also: making},
	{name: "key ignored", breaks: changedRequest(func(q *request) { q.key += unique() }),
		fails: map[string]string{"key-repeated": "two instances", "key-concurrent": "two instances", "key-reopened": "two instances",
			"key-lost-reply": "0 instances have the key", "list-content": "key", "teardown": "two instances"},
		also: []string{"key-concurrent-processes", "key-empty", "key-uuid", "key-odd", "key-other-spec", "key-after-delete", "key-after-error", "key-stopped", "list-reopened-content", "get", "verify-harmless",
			"list-pool"}},
	{name: "one instance for all", breaks: changedRequest(func(q *request) { q.key = "key" }),
		fails: map[string]string{"key-different": "two instances have the id", "create-parallel": "two instances have the id"},
		also: []string{"create-names-differ", "key-lost-reply", "key-similar", "key-empty", "key-uuid", "key-odd", "key-other-spec", "key-after-delete", "delete-others",
			"list-owner", "list-content", "list-others", "list-many", "list-match-all", "list-reopened-content", "list-pool", "get", "attach-concurrent", "attach-second", "detach-other"}},
	{name: "context ignored", breaks: all(around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		time.Sleep(time.Second)
		return create(context.WithoutCancel(ctx), q)
	}), aroundList(func(_ *broken, ctx context.Context, match map[string]string, list lister) ([]provider.Instance, error) {
		return list(context.WithoutCancel(ctx), match)
	})), fails: map[string]string{"cancel-before": "no return within", "cancel-midway": "no return within"},
		also: []string{"cancel-retryable", "key-lost-reply"}},
	{name: "deletes nothing", breaks: func(b *broken) { b.delete = func(context.Context, string) error { return nil } },
		fails: map[string]string{"delete": "still shows", "list-deleted": "still shows", "get-deleted": "still answers",
			"delete-empty-id": "no error", "delete-reopened": "still shows", "create": "still shows"}, also: making, leaves: true},
	{name: "deletes the instance only", breaks: func(b *broken) {
		b.Inject(fake.PartialDelete().Repeated(-1))
		remove := b.delete
		b.delete = func(ctx context.Context, id string) error {
			if err := remove(ctx, id); provider.Class(err) != provider.ErrUnavailable {
				return err
			}
			return nil
		}
	}, fails: map[string]string{"delete": "left behind after DeleteInstance", "create": "left behind"}, also: making, leaves: true},
	{name: "delete hangs", breaks: aroundDelete(func(b *broken, _ context.Context, _ string, _ deleter) error {
		b.hang()
		return nil
	}), fails: map[string]string{"delete": "no return within", "cancel-before": "no return within"},
		also: slices.Concat(making, []string{"cancel-reads", "delete-absent", "delete-empty-id", "teardown-then-calls"}), leaves: true},
	{name: "listed twice", breaks: changedPage(func(_ *broken, list []provider.Instance) []provider.Instance { return append(list, list...) }),
		fails: map[string]string{"list-owner": "twice", "key-lost-reply": "2 instances"},
		also: []string{"key-uuid", "key-odd", "key-other-spec", "key-after-delete", "list-content", "list-others", "list-deleted", "list-many",
			"list-match-all", "list-unknown-tag", "list-tag-characters", "list-concurrent", "list-while-starting", "list-pool", "power-listed"}},
	{name: "list without keys", breaks: changedList(func(_ *broken, i *provider.Instance) { i.Key = "" }), fails: map[string]string{"list-content": `key ""`},
		also: []string{"key-lost-reply", "key-uuid", "key-odd", "key-other-spec", "key-after-delete", "list-reopened-content", "list-pool"}},
}
