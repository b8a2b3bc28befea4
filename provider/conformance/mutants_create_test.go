// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

var createMutants = []mutant{
	{name: "no address", breaks: changedEverywhere(func(i *provider.Instance) { i.IPs = nil }), fails: map[string]string{"create": "has no address"}},
	{name: "address twice", breaks: changedEverywhere(func(i *provider.Instance) { i.IPs = append(i.IPs, i.IPs[0]) }), fails: map[string]string{"create": "twice"}},
	{name: "zero address", breaks: changedEverywhere(func(i *provider.Instance) { i.IPs[0] = netip.Addr{} }),
		fails: map[string]string{"create": "nobody can reach"}, also: []string{"create-parallel", "key-different", "key-similar"}},
	{name: "loopback address", breaks: changedEverywhere(func(i *provider.Instance) {
		b := i.IPs[0].As4()
		b[0] = 127
		i.IPs[0] = netip.AddrFrom4(b)
	}), fails: map[string]string{"create-address": "whoever asks"}},
	{name: "name in capitals", breaks: changedEverywhere(func(i *provider.Instance) {
		if strings.Contains(i.Name, "conformance") {
			i.Name = strings.ToUpper(i.Name)
		}
	}), fails: map[string]string{"create-name": "not a DNS label"}},
	{name: "no name", breaks: changedEverywhere(func(i *provider.Instance) { i.Name = "" }), fails: map[string]string{"create": "has no name",
		"create-name": "not a DNS label", "create-names-differ": `both have the name ""`, "create-pod-name-long": "not a DNS label",
		"create-pod-name-odd": "not a DNS label", "create-pod-name-empty": "not a DNS label"}},
	{name: "name of the pod", breaks: changedEverywhere(func(i *provider.Instance) {
		if strings.Contains(i.Name, "conformance") {
			i.Name = "podvm-conformance"
		}
	}), fails: map[string]string{"create-names-differ": "both have the name"}},
	{name: "long names refused", breaks: refused(provider.ErrInvalidArgument, func(q request) bool { return len(q.pod) > 63 }),
		fails: map[string]string{"create-pod-name-long": "refused"}},
	{name: "odd names refused", breaks: refused(provider.ErrInvalidArgument, func(q request) bool { return strings.ContainsAny(q.pod, " /ü") }),
		fails: map[string]string{"create-pod-name-odd": "refused"}},
	{name: "name not cleaned", breaks: around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		instance, err := create(ctx, q)
		if err == nil && strings.ContainsAny(q.pod, " /ü") {
			instance.Name = "podvm-" + q.pod
		}
		return instance, err
	}), fails: map[string]string{"create-pod-name-odd": "not a DNS label"}},
	{name: "empty name refused", breaks: refused(provider.ErrInvalidArgument, func(q request) bool { return q.pod == "" }), fails: map[string]string{"create-pod-name-empty": "refused"}},
	{name: "writes into the tags", breaks: changedRequest(func(q *request) { q.spec.Tags["provider"] = "mine" }),
		fails: map[string]string{"create-arguments": "changed the tags"}},
	{name: "keeps the tags", breaks: keepsTags, fails: map[string]string{"create-arguments": "keeps the caller's map"}},
	{name: "one address in a rush", boots: true, breaks: around(func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		b.count("running", 1)
		b.count("running "+q.key, 1)
		time.Sleep(time.Millisecond) // until all have counted
		others := b.count("running", 0) > b.count("running "+q.key, 0)
		instance, err := create(ctx, q)
		b.count("running", -1)
		b.count("running "+q.key, -1)
		if err == nil && others {
			instance.IPs[0] = netip.MustParseAddr("192.0.2.1")
		}
		return instance, err
	}), fails: map[string]string{"create-parallel": "have the address 192.0.2.1"}},
}

func keepsTags(b *broken) {
	kept := map[string]map[string]string{}
	around(func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		b.mu.Lock()
		if kept[q.key] == nil {
			kept[q.key] = q.spec.Tags
		}
		b.mu.Unlock()
		return create(ctx, q)
	})(b)
	changedList(func(b *broken, i *provider.Instance) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for key, value := range kept[i.Key] {
			i.Tags[key] = value
		}
	})(b)
}

// changedText breaks the user-data on its way.
func changedText(change func(string) (string, error)) breakage {
	return around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		text, err := userdata.Generate(q.config)
		if err != nil {
			return nil, err
		}
		if text, err = change(text); err != nil {
			return nil, err
		}
		q.config = cloudinit.Raw(text)
		return create(ctx, q)
	})
}

var userDataMutants = []mutant{
	{name: "user-data twice", breaks: changedRequest(func(q *request) { userdata.Generate(q.config) }), fails: map[string]string{"create-user-data-once": "2 times"}},
	{name: "cause lost", breaks: around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		text, err := userdata.Generate(q.config)
		if err != nil {
			return nil, failure("generate: "+err.Error(), provider.ErrInvalidArgument)
		}
		q.config = cloudinit.Raw(text)
		return create(ctx, q)
	}), fails: map[string]string{"create-user-data-error": "does not wrap"}},
	{name: "half an instance stays without user-data", breaks: around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		text, err := userdata.Generate(q.config)
		if err != nil {
			q.config, q.spec.Tags = cloudinit.Raw(""), nil
			create(ctx, q)
			return nil, err
		}
		q.config = cloudinit.Raw(text)
		return create(ctx, q)
	}), fails: map[string]string{"create-user-data-error": "left behind"}, leaves: true},
	{name: "failed user-data without its class", breaks: around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		if q.config == nil {
			return create(ctx, q)
		}
		text, err := q.config.Generate()
		if err != nil {
			return nil, failure("generate", err)
		}
		q.config = cloudinit.Raw(text)
		return create(ctx, q)
	}), fails: map[string]string{"create-user-data-error": "class"}},
	{name: "no user-data panics", breaks: around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		if q.config == nil {
			panic("invalid memory address")
		}
		return create(ctx, q)
	}), fails: map[string]string{"create-user-data-none": "panic: invalid memory address"}},
	{name: "empty user-data refused", breaks: around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		if q.config == cloudinit.Raw("") {
			return nil, failure("no user-data", provider.ErrInvalidArgument)
		}
		return create(ctx, q)
	}), fails: map[string]string{"create-user-data-empty": "no user-data"}},
	{name: "12 KiB of user-data", breaks: changedText(func(text string) (string, error) {
		if len(text) > 12<<10 {
			return "", failure("more than 12 KiB", provider.ErrInvalidArgument)
		}
		return text, nil
	}), fails: map[string]string{"create-user-data-limit": "more than 12 KiB"}},
	{name: "user-data with other ends of lines", breaks: changedText(func(text string) (string, error) {
		return strings.ReplaceAll(text, "\r\n", "\n"), nil
	}), fails: map[string]string{"create-user-data-exact": "differ from byte"}},
	{name: "user-data in ASCII", breaks: changedText(func(text string) (string, error) {
		return strings.ToValidUTF8(strings.ReplaceAll(text, "\U0001f680", "?"), "?"), nil
	}), fails: map[string]string{"create-user-data-exact": "differ from byte"}},
	{name: "user-data cut", breaks: changedText(func(text string) (string, error) {
		return text[:min(len(text), 1<<20)], nil
	}), fails: map[string]string{"create-user-data-huge": "has 1048576 bytes of user-data"}},
}

var sizeMutants = []mutant{
	{name: "CPUs need memory", breaks: refused(provider.ErrInvalidArgument, func(q request) bool { return q.spec.VCPUs > 0 && q.spec.Memory == 0 }),
		fails: map[string]string{"create-cpus-only": "refused"}},
	{name: "memory needs CPUs", breaks: refused(provider.ErrInvalidArgument, func(q request) bool { return q.spec.VCPUs == 0 && q.spec.Memory > 0 }),
		fails: map[string]string{"create-memory-only": "refused"}},
	{name: "32 bits of CPUs", breaks: changedRequest(func(q *request) {
		if q.spec.VCPUs > math.MaxInt32 {
			q.spec.VCPUs, q.spec.Memory = int64(uint32(q.spec.VCPUs)&1), 0
		}
	}), fails: map[string]string{"create-size-huge": "returned"}},
	{name: "huge of no class", breaks: changedError(func(q request, err error) error {
		if q.spec.Memory > 1<<30 {
			return failure("too much", nil)
		}
		return err
	}), fails: map[string]string{"create-size-huge": "has class"}},
	{name: "negative is the default", breaks: changedRequest(func(q *request) { q.spec.Memory = max(q.spec.Memory, 0) }),
		fails: map[string]string{"create-size-negative": "returned"}},
	{name: "any zone will do", breaks: changedRequest(func(q *request) { q.spec.Zone = "" }), fails: map[string]string{"create-unknown-zone": "returned"}},
	{name: "a zone that has no name", breaks: changedError(func(q request, err error) error {
		if q.spec.Zone != "" && err != nil {
			return failure("not there", provider.ErrInvalidArgument)
		}
		return err
	}), fails: map[string]string{"create-unknown-zone": "does not name"}},
	{name: "does not say where it is", breaks: changedInstance(func(i *provider.Instance) { i.Zone = "" }), fails: map[string]string{"create-zone": "in zone \"\""}},
	{name: "any architecture", breaks: changedRequest(func(q *request) { q.spec.Arch = "" }), fails: map[string]string{"create-unknown-arch": "returned"}},
	{name: "no GPUs", breaks: changedRequest(func(q *request) {
		if q.spec.GPUs > 0 {
			q.spec.GPUs, q.spec.GPU = 0, ""
		}
	}), fails: map[string]string{"create-unknown-gpu": "returned"}},
	{name: "any type", breaks: changedRequest(func(q *request) { q.spec.InstanceType = "" }), fails: map[string]string{"create-unknown-type": "returned"}},
	{name: "any image", breaks: changedRequest(func(q *request) { q.spec.Image = "" }), fails: map[string]string{"create-unknown-image": "returned"}},
	{name: "unknown type is worth a retry", breaks: changedError(func(q request, err error) error {
		if q.spec.InstanceType != "" {
			return failure(err.Error(), nil)
		}
		return err
	}), fails: map[string]string{"create-unknown-type": "has class"}},
	{name: "which type", breaks: changedError(func(q request, err error) error {
		if q.spec.InstanceType != "" {
			return provider.ErrInvalidArgument
		}
		return err
	}), fails: map[string]string{"error-names-type": "does not name"}},
	{name: "which image", breaks: changedError(func(q request, err error) error {
		if q.spec.Image != "" {
			return provider.ErrNotFound
		}
		return err
	}), fails: map[string]string{"error-names-image": "does not name"}},
}

var cancelMutants = []mutant{
	{name: "a look-up hangs once its context has ended", breaks: func(b *broken) {
		get := b.get
		b.get = func(ctx context.Context, id string) (*provider.Instance, error) {
			if ctx.Err() != nil {
				b.hang()
			}
			return get(ctx, id)
		}
	}, fails: map[string]string{"cancel-before": "GetInstance after its context ended: no return within"}},
	{name: "a look-up goes on when its context ends", breaks: func(b *broken) {
		get := b.get
		b.get = func(ctx context.Context, id string) (*provider.Instance, error) {
			if cutShort(ctx) && ctx.Err() == nil {
				b.hang()
			}
			return get(ctx, id)
		}
	}, fails: map[string]string{"cancel-reads": "GetInstance after its context ended: no return within"}},
	{name: "half an instance without tags until the next try", breaks: halfUntilNext, fails: map[string]string{"cancel-midway": "left behind"}, leaves: true},
	{name: "an ended context is a bad argument", breaks: around(func(_ *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		if ctx.Err() != nil {
			return nil, failure("context", provider.ErrInvalidArgument)
		}
		return create(ctx, q)
	}), fails: map[string]string{"cancel-retryable": "which nobody retries"}},
	{name: "a deletion cut short counts as done", breaks: aroundDelete(func(b *broken, ctx context.Context, id string, remove deleter) error {
		if b.marked("deleted "+id) != "" {
			return nil
		}
		if ctx.Err() != nil {
			b.mark("deleted "+id, "yes")
		}
		return remove(ctx, id)
	}), fails: map[string]string{"cancel-delete": "still shows"}, leaves: true},
	{name: "power cut short stays busy", breaks: func(b *broken) {
		powerOff := b.powerOff
		b.powerOff = func(ctx context.Context, id string) error {
			if b.count("busy "+id, 0) > 0 {
				return failure("another operation is running", provider.ErrUnavailable)
			}
			b.count("busy "+id, 1)
			err := powerOff(ctx, id)
			if ctx.Err() == nil {
				b.count("busy "+id, -1)
			}
			return err
		}
	}, fails: map[string]string{"cancel-power": "another operation"}},
	{name: "connecting goes on when its context ends", breaks: func(b *broken) {
		open := b.open
		b.open = func(ctx context.Context) (provider.Provider, error) {
			if cutShort(ctx) {
				b.hang()
			}
			return open(ctx)
		}
	}, fails: map[string]string{"cancel-open": "NewProviderContext after its context ended: no return within"}},
	{name: "verifying goes on when its context ends", breaks: func(b *broken) {
		b.verifying = func(ctx context.Context) error {
			if cutShort(ctx) {
				b.hang()
			}
			return b.verify()
		}
	}, fails: map[string]string{"cancel-verify": "VerifyConfig after its context ended: no return within"}},
	{name: "a verification that was cut short stays", breaks: func(b *broken) {
		b.verifying = func(ctx context.Context) error {
			if b.count("cut short", 0) > 0 {
				return failure("somebody verifies", provider.ErrUnavailable)
			}
			if cutShort(ctx) {
				b.count("cut short", 1)
			}
			return b.verify()
		}
	}, fails: map[string]string{"cancel-verify": "somebody verifies"}},
	{name: "closing goes on when its context ends", breaks: func(b *broken) {
		b.closing = func(ctx context.Context) error {
			if cutShort(ctx) {
				b.hang()
			}
			return b.teardown()
		}
	}, fails: map[string]string{"cancel-teardown": "TeardownContext after its context ended: no return within"}},
}

// halfUntilNext makes an instance without tags when its context ends, and
// removes it when the key comes again.
func halfUntilNext(b *broken) {
	around(func(b *broken, ctx context.Context, q request, create creator) (*provider.Instance, error) {
		if cutShort(ctx) && ctx.Err() == nil {
			q.spec.Tags = nil
			half, err := create(context.WithoutCancel(ctx), q)
			if err == nil {
				b.mark("half "+q.key, half.ID)
			}
			return nil, failure("no reply", provider.ErrUnavailable)
		}
		if half := b.marked("half " + q.key); half != "" {
			b.mark("half "+q.key, "")
			if err := b.Cloud.DeleteInstance(ctx, half); err != nil {
				return nil, err
			}
		}
		return create(ctx, q)
	})(b)
}

// busyTime is how long a call is under way in which others are refused.
const busyTime = 30 * time.Millisecond
