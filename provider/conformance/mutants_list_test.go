// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// changedMatch breaks what lists look for.
func changedMatch(change func(match map[string]string)) breakage {
	return aroundList(func(_ *broken, ctx context.Context, match map[string]string, list lister) ([]provider.Instance, error) {
		match = maps.Clone(match)
		change(match)
		return list(ctx, match)
	})
}

// changedPage breaks what lists answer as a whole.
func changedPage(change func(b *broken, list []provider.Instance) []provider.Instance) breakage {
	return aroundList(func(b *broken, ctx context.Context, match map[string]string, list lister) ([]provider.Instance, error) {
		instances, err := list(ctx, match)
		return change(b, instances), err
	})
}

var listMutants = []mutant{
	{name: "who is not let in sees an empty list", breaks: aroundList(func(_ *broken, ctx context.Context, match map[string]string, list lister) ([]provider.Instance, error) {
		instances, err := list(ctx, match)
		return instances, withoutAccess(err, nil)
	}), fails: map[string]string{"list-no-access": "no error"}},
	{name: "the last of a full page", breaks: changedPage(func(_ *broken, list []provider.Instance) []provider.Instance {
		if len(list) == 2 {
			return list[:1]
		}
		return list
	}), fails: map[string]string{"list-owner": "the list shows 1 instances"}},
	{name: "first page only", breaks: changedPage(func(_ *broken, list []provider.Instance) []provider.Instance { return list[:min(2, len(list))] }),
		fails: map[string]string{"list-many": "the list shows 2 instances"}},
	{name: "list of a node without a tag of one's own", breaks: all(remembersIDs, changedList(func(b *broken, i *provider.Instance) {
		if b.mine(i.ID) && i.Tags[provider.TagNode] != "" {
			delete(i.Tags, provider.TagCreated)
		}
	})), fails: map[string]string{"list-content": provider.TagCreated}},
	{name: "list with a wrong time", breaks: changedList(func(_ *broken, i *provider.Instance) { i.Created = time.Unix(0, 0) }),
		fails: map[string]string{"list-content": "1970", "list-reopened-content": "1970", "list-created": "1970"}},
	{name: "list with a foreign state", breaks: changedList(func(_ *broken, i *provider.Instance) { i.State = "ACTIVE" }),
		fails: map[string]string{"list-content": `"ACTIVE"`, "list-reopened-content": `"ACTIVE"`, "list-state": `"ACTIVE"`}},
	{name: "list of the cluster", breaks: changedMatch(func(match map[string]string) {
		if len(match) > 1 {
			delete(match, provider.TagNode)
		}
	}), fails: map[string]string{"list-others": "does not have the tags"}},
	{name: "list of everybody", breaks: aroundList(func(_ *broken, ctx context.Context, match map[string]string, list lister) ([]provider.Instance, error) {
		if len(match) == 0 {
			return nil, nil
		}
		return list(ctx, match)
	}), fails: map[string]string{"list-empty-match": "returned no error"}},
	{name: "the deleted come back", breaks: comeBack, fails: map[string]string{"list-deleted": "again"}},
	{name: "list of live processes", breaks: all(remembersIDs, changedPage(func(b *broken, list []provider.Instance) []provider.Instance {
		return slices.DeleteFunc(list, func(i provider.Instance) bool { return b.makerClosed(i.ID) })
	})), fails: map[string]string{"list-reopened": "does not show"}},
	{name: "tags in memory only", breaks: all(remembersIDs, changedList(func(b *broken, i *provider.Instance) {
		if !b.mine(i.ID) {
			delete(i.Tags, provider.TagPod)
		}
	})), fails: map[string]string{"list-reopened-content": provider.TagPod}},
	{name: "list without looking at the key", breaks: changedMatch(func(match map[string]string) {
		if len(match) > 1 {
			delete(match, provider.TagKey)
		}
	}), fails: map[string]string{"list-match-all": "does not have the tags"}},
	{name: "list without looking at strange tags", breaks: changedMatch(func(match map[string]string) { delete(match, "outrigger-no-such-tag") }),
		fails: map[string]string{"list-unknown-tag": "does not have the tags"}},
	{name: "tags without dots", breaks: changedRequest(func(q *request) {
		q.spec.Tags = maps.Clone(q.spec.Tags)
		q.spec.Tags[provider.TagPod] = strings.ReplaceAll(q.spec.Tags[provider.TagPod], ".", "-")
	}), fails: map[string]string{"list-tag-characters": "the list shows 0 instances"}},
	{name: "tags in small letters", breaks: all(changedList(func(_ *broken, i *provider.Instance) {
		i.Tags[provider.TagNamespace] = strings.ToLower(i.Tags[provider.TagNamespace])
	})), fails: map[string]string{"list-tag-characters": "made with"}},
	{name: "list with an address more", breaks: changedList(func(_ *broken, i *provider.Instance) { i.IPs = append(i.IPs, netip.MustParseAddr("192.0.2.1")) }),
		fails: map[string]string{"list-addresses": "192.0.2.1"}},
	{name: "list without names", breaks: changedList(func(_ *broken, i *provider.Instance) { i.Name = "" }), fails: map[string]string{"list-name": `name ""`}},
	{name: "created in local time", breaks: changedEverywhere(func(i *provider.Instance) { i.Created = i.Created.Add(-time.Hour) }),
		fails: map[string]string{"list-created": "was created"}},
	{name: "always pending", breaks: changedList(func(_ *broken, i *provider.Instance) { i.State = provider.StatePending }),
		fails: map[string]string{"list-state": "does not become"}},
	{name: "one list at a time", breaks: aroundList(func(b *broken, ctx context.Context, match map[string]string, list lister) ([]provider.Instance, error) {
		defer b.count("lists", -1)
		if b.count("lists", 1) > 1 {
			return nil, failure("another list is running", provider.ErrUnavailable)
		}
		<-time.After(busyTime)
		return list(ctx, match)
	}), fails: map[string]string{"list-concurrent": "another list"}},
	{name: "keys are tagged at the end", boots: true, breaks: changedList(func(_ *broken, i *provider.Instance) {
		if i.State == provider.StatePending {
			i.Key = ""
		}
	}), fails: map[string]string{"list-while-starting": `key ""`}},
	{name: "lists wait for creations", boots: true, breaks: all(
		around(func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
			b.count("creating", 1)
			defer b.count("creating", -1)
			return create(ctx, q)
		}),
		aroundList(func(b *broken, ctx context.Context, match map[string]string, list lister) ([]provider.Instance, error) {
			if b.count("creating", 0) > 0 {
				return nil, failure("a creation is running", provider.ErrUnavailable)
			}
			return list(ctx, match)
		})), fails: map[string]string{"list-while-starting": "a creation is running", "delete-while-creating": "a creation is running"}},
	{name: "list of nodes", breaks: changedPage(func(_ *broken, list []provider.Instance) []provider.Instance {
		return slices.DeleteFunc(list, func(i provider.Instance) bool { return i.Tags[provider.TagNode] == "" })
	}), fails: map[string]string{"list-pool": "the list shows 0 instances"}},
	{name: "lists share tags", breaks: sharedTags, fails: map[string]string{"list-own": "changed what an earlier list"}},
}

// comeBack shows a deleted instance again in the third list after that.
func comeBack(b *broken) {
	var last provider.Instance
	lists := 0
	aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if i, err := b.Cloud.GetInstance(ctx, id); err == nil {
			b.mu.Lock()
			last, lists = *i, 0
			b.mu.Unlock()
		}
		return remove(ctx, id)
	})(b)
	changedPage(func(b *broken, list []provider.Instance) []provider.Instance {
		b.mu.Lock()
		defer b.mu.Unlock()
		if lists++; lists == 3 && len(list) == 0 && last.ID != "" {
			return []provider.Instance{last}
		}
		return list
	})(b)
}

func sharedTags(b *broken) {
	tags := map[string]map[string]string{}
	changedList(func(b *broken, i *provider.Instance) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if tags[i.ID] == nil {
			tags[i.ID] = i.Tags
		}
		i.Tags = tags[i.ID]
	})(b)
}

// lookupFails returns other errors for some ids that do not exist.
func lookupFails(when func(b *broken, id string) bool) breakage {
	return all(remembersIDs, func(b *broken) {
		get := b.get
		b.get = func(ctx context.Context, id string) (*provider.Instance, error) {
			instance, err := get(ctx, id)
			if err != nil && when(b, id) {
				return nil, failure("404", nil)
			}
			return instance, err
		}
	})
}

var getMutants = []mutant{
	{name: "look-up without tags", breaks: changedGet(func(i *provider.Instance) { i.Tags = nil }), fails: map[string]string{"get": "tag "}},
	{name: "look-up of nothing", breaks: func(b *broken) {
		b.get = func(context.Context, string) (*provider.Instance, error) { return nil, nil }
	}, fails: map[string]string{"get": "neither", "get-absent": "returned", "get-deleted": "still answers", "get-garbage": "returned", "get-no-access": "no error"},
		also: powerStates},
	{name: "absent of no class", breaks: lookupFails(func(_ *broken, id string) bool { return id == absent }), fails: map[string]string{"get-absent": "has class"}},
	{name: "deleted of no class", breaks: lookupFails(func(b *broken, id string) bool { return b.gone(id) }), fails: map[string]string{"get-deleted": "404"}},
	{name: "who is not let in finds nothing", breaks: func(b *broken) {
		get := b.get
		b.get = func(ctx context.Context, id string) (*provider.Instance, error) {
			instance, err := get(ctx, id)
			return instance, withoutAccess(err, failure("no such account", provider.ErrNotFound))
		}
	}, fails: map[string]string{"get-no-access": "no such account"}},
	{name: "garbage of no class", breaks: lookupFails(func(_ *broken, id string) bool { return strings.ContainsAny(id, " /*%\n\t") }),
		fails: map[string]string{"get-garbage": "has class"}},
}

// powerStates are the checks that look whether power did something.
var powerStates = []string{"power", "power-address", "power-concurrent", "power-listed", "power-content", "power-user-data", "cancel-power", "attach-power", "attach-stopped",
	"delete-stopped", "key-stopped"}

// aroundConsole is around for consoles.
func aroundConsole(f func(b *broken, ctx context.Context, id string, tail int64, console consoler) ([]byte, error)) breakage {
	return all(remembersIDs, func(b *broken) {
		console := b.console
		b.console = func(ctx context.Context, id string, tail int64) ([]byte, error) { return f(b, ctx, id, tail, console) }
	})
}

// aroundPower is around for both calls.
func aroundPower(f func(b *broken, ctx context.Context, id string, state provider.InstanceState, power deleter) error) breakage {
	return all(remembersIDs, func(b *broken) {
		off, on := b.powerOff, b.powerOn
		b.powerOff = func(ctx context.Context, id string) error { return f(b, ctx, id, provider.StateStopped, off) }
		b.powerOn = func(ctx context.Context, id string) error { return f(b, ctx, id, provider.StateRunning, on) }
	})
}

var powerMutants = []mutant{
	{name: "whole console", breaks: aroundConsole(func(_ *broken, ctx context.Context, id string, tail int64, console consoler) ([]byte, error) {
		return console(ctx, id, max(tail, min(tail*1000, 1<<20)))
	}), fails: map[string]string{"console": "asked for the last"}},
	{name: "head of the console", breaks: aroundConsole(func(_ *broken, ctx context.Context, id string, tail int64, console consoler) ([]byte, error) {
		if tail < 0 {
			return console(ctx, id, tail)
		}
		text, err := console(ctx, id, 1<<20)
		return text[:min(int64(len(text)), tail)], err
	}), fails: map[string]string{"console": "but the console ends with"}},
	{name: "console of nobody", breaks: aroundConsole(func(_ *broken, ctx context.Context, id string, tail int64, console consoler) ([]byte, error) {
		if id == absent {
			return nil, nil
		}
		return console(ctx, id, tail)
	}), fails: map[string]string{"console-absent": "returned"}},
	{name: "console of the deleted", breaks: aroundConsole(func(b *broken, ctx context.Context, id string, tail int64, console consoler) ([]byte, error) {
		if b.gone(id) {
			return []byte("."), nil
		}
		return console(ctx, id, tail)
	}), fails: map[string]string{"console-deleted": "still answers"}},
	{name: "1 GiB of console", breaks: aroundConsole(func(_ *broken, ctx context.Context, id string, tail int64, console consoler) ([]byte, error) {
		if tail > math.MaxInt32 {
			return nil, failure("too much", provider.ErrInvalidArgument)
		}
		return console(ctx, id, tail)
	}), fails: map[string]string{"console-huge": "too much"}},
	{name: "negative is all", breaks: aroundConsole(func(_ *broken, ctx context.Context, id string, tail int64, console consoler) ([]byte, error) {
		return console(ctx, id, max(tail, 0))
	}), fails: map[string]string{"console-negative": "returned"}},

	{name: "started as another", breaks: all(aroundPower(func(b *broken, ctx context.Context, id string, state provider.InstanceState, power deleter) error {
		b.mark("power of "+id, string(state))
		return power(ctx, id)
	}), changedList(func(b *broken, i *provider.Instance) {
		if b.marked("power of "+i.ID) == string(provider.StateRunning) {
			delete(i.Tags, provider.TagPod)
		}
	})), fails: map[string]string{"power-content": provider.TagPod}},
	{name: "user-data at the first boot only", breaks: aroundPower(func(b *broken, ctx context.Context, id string, state provider.InstanceState, power deleter) error {
		if state == provider.StateStopped {
			b.mark("user-data lost of "+id, "yes")
		}
		return power(ctx, id)
	}), fails: map[string]string{"power-user-data": "0 bytes of user-data"}},
	{name: "power twice is an error", breaks: aroundPower(func(b *broken, ctx context.Context, id string, state provider.InstanceState, power deleter) error {
		defer b.count("power "+id, -1)
		b.count("power "+id, 1)
		<-time.After(busyTime)
		if i, err := b.Cloud.GetInstance(ctx, id); err == nil && i.State == state && b.count("power "+id, 0) == 1 && b.count("racers "+id, 0) == 0 {
			return failure("the state is that already", nil)
		}
		if b.count("power "+id, 0) > 1 {
			b.count("racers "+id, 1)
		}
		return power(ctx, id)
	}), fails: map[string]string{"power": "that already"}},
	{name: "power does nothing", breaks: func(b *broken) { b.powerOff = func(context.Context, string) error { return nil } },
		fails: map[string]string{"power": `"running", not "stopped"`, "power-absent": "no error"}, also: powerStates},
	{name: "power of nobody", breaks: aroundPower(func(_ *broken, ctx context.Context, id string, _ provider.InstanceState, power deleter) error {
		if id == absent {
			return nil
		}
		return power(ctx, id)
	}), fails: map[string]string{"power-absent": "returned no error"}},
	{name: "power of the deleted", breaks: aroundPower(func(b *broken, ctx context.Context, id string, _ provider.InstanceState, power deleter) error {
		if b.gone(id) {
			return nil
		}
		return power(ctx, id)
	}), fails: map[string]string{"power-deleted": "still answers"}},
	{name: "another address after power", breaks: all(aroundPower(func(b *broken, ctx context.Context, id string, _ provider.InstanceState, power deleter) error {
		b.mark("power "+id, "yes")
		return power(ctx, id)
	}), changedList(func(b *broken, i *provider.Instance) {
		if b.marked("power "+i.ID) != "" {
			i.IPs[0] = netip.MustParseAddr("192.0.2.1")
		}
	})), fails: map[string]string{"power-address": "192.0.2.1"}},
	{name: "list of what runs", breaks: changedPage(func(_ *broken, list []provider.Instance) []provider.Instance {
		return slices.DeleteFunc(list, func(i provider.Instance) bool { return i.State == provider.StateStopped })
	}), fails: map[string]string{"power-listed": "0 instances", "power-address": "does not show", "power-content": "does not show"}},
	{name: "what is stopped is listed once", breaks: hidesStopped, fails: map[string]string{"power-listed": "0 instances"}},
	{name: "one at the switch", breaks: aroundPower(func(b *broken, ctx context.Context, id string, _ provider.InstanceState, power deleter) error {
		defer b.count("power "+id, -1)
		if b.count("power "+id, 1) > 1 {
			return failure("another operation is running", provider.ErrUnavailable)
		}
		<-time.After(busyTime)
		return power(ctx, id)
	}), fails: map[string]string{"power-concurrent": "another operation"}},

	{name: "type twice", breaks: changedTypes(func(_ *broken, types []provider.InstanceType) []provider.InstanceType { return append(types, types[0]) }),
		fails: map[string]string{"types": "one that another has"}},
	{name: "no types", breaks: changedTypes(func(*broken, []provider.InstanceType) []provider.InstanceType { return nil }), fails: map[string]string{"types": "0 types"}},
	{name: "type without memory", breaks: changedTypes(func(_ *broken, types []provider.InstanceType) []provider.InstanceType {
		types[0].Memory = 0
		return types
	}), fails: map[string]string{"types": "no size"}},
	{name: "types in any order", breaks: changedTypes(func(b *broken, types []provider.InstanceType) []provider.InstanceType {
		n := b.count("types", 1) % len(types)
		return slices.Concat(types[n:], types[:n])
	}), fails: map[string]string{"types-repeated": "and then"}},
	{name: "no node address", breaks: func(b *broken) {
		b.nodeAddress = func() (netip.Addr, error) { return netip.IPv4Unspecified(), nil }
	}, fails: map[string]string{"node-address": "0.0.0.0"}},
	{name: "node address fails", breaks: func(b *broken) {
		b.nodeAddress = func() (netip.Addr, error) { return netip.Addr{}, failure("no bridge", nil) }
	}, fails: map[string]string{"node-address": "no bridge", "node-address-repeated": "no bridge"}},
	{name: "another node address", breaks: func(b *broken) {
		b.nodeAddress = func() (netip.Addr, error) {
			return netip.AddrFrom4([4]byte{192, 0, 2, byte(b.count("addresses", 1))}), nil
		}
	}, fails: map[string]string{"node-address-repeated": "and then"}},
}

// hidesStopped shows a stopped instance in one list only.
func hidesStopped(b *broken) {
	changedPage(func(b *broken, list []provider.Instance) []provider.Instance {
		return slices.DeleteFunc(list, func(i provider.Instance) bool {
			return i.State == provider.StateStopped && b.count("lists of stopped "+i.ID, 1) > 1
		})
	})(b)
}

func changedTypes(change func(*broken, []provider.InstanceType) []provider.InstanceType) breakage {
	return func(b *broken) {
		types := b.types
		b.types = func() ([]provider.InstanceType, error) {
			list, err := types()
			if err != nil {
				return nil, err
			}
			return change(b, list), nil
		}
	}
}
