// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// Options configure a cloud. The zero value is a cloud in memory without
// faults, delays or limits.
type Options struct {
	// Dir keeps the cloud in that folder instead of in memory; it is made if
	// missing. Faults, delays and hooks belong to the process.
	Dir string
	// Network is where addresses come from; 198.18.0.0/15 (RFC 2544) by default.
	Network netip.Prefix
	// Types is the catalogue and DefaultType one of them. See [DefaultTypes].
	Types       []provider.InstanceType
	DefaultType string
	// Images are the images there are, the first being the default. By
	// default there is one, "podvm".
	Images []string
	// Capacity is how many instances fit, after which creating one gives
	// ErrCapacity; 0 means no limit.
	Capacity int
	// DedicatedNIC gives every instance a second address for the tunnel.
	DedicatedNIC bool
	// Disks are what can be made with CreateDisk.
	Disks DiskOptions
	// Latency is how long every call takes at least.
	Latency time.Duration
	// Eventual makes answers lag behind.
	Eventual Eventual
	// Faults are the script; more can be added with [Cloud.Inject].
	Faults []Fault
	// Boot, if any, starts the guest of a new instance and returns the
	// addresses it has, or none to keep those the cloud chose. It is called
	// again for the same instance when an earlier call did not finish, also
	// by another process. Its context ends with the call that creates the
	// instance, or when the instance is deleted meanwhile. An error fails the
	// creation and removes the instance, and Halt is called.
	Boot func(ctx context.Context, request BootRequest) ([]netip.Addr, error)
	// Halt, if any, ends what Boot started. It is called when the instance is
	// deleted, perhaps several times, perhaps without Boot. An error fails the
	// deletion and leaves the instance.
	Halt func(ctx context.Context, instance provider.Instance) error
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// BootRequest is what a guest needs to start.
type BootRequest struct {
	Instance provider.Instance
	UserData string
}

// Eventual says how eventually consistent the cloud is. Idempotency by key is
// always consistent, as with the request tokens of real clouds.
type Eventual struct {
	// Lists and Gets are how many lists and look-ups do not show a new
	// instance yet; Lists also counts those of load balancers, disks and snapshots.
	Lists, Gets int
	// Lingers is how many lists still show a deleted instance, as deleting.
	Lingers int
}

// DefaultTypes returns the catalogue of a cloud whose options have none. The first
// type is the default.
func DefaultTypes() []provider.InstanceType {
	arch, foreign := runtime.GOARCH, "arm64"
	if arch == foreign {
		foreign = "amd64"
	}
	return []provider.InstanceType{
		{Name: "fake.small", VCPUs: 2, Memory: 2048, Arch: arch, Zones: []string{"a", "b"}, Price: 0.02},
		{Name: "fake.tiny", VCPUs: 1, Memory: 512, Arch: arch, Zones: []string{"a"}, Price: 0.01},
		{Name: "fake.medium", VCPUs: 4, Memory: 8192, Arch: arch, Zones: []string{"a", "b"}, Price: 0.05},
		{Name: "fake.large", VCPUs: 16, Memory: 32768, Arch: arch, Zones: []string{"a", "b"}, Price: 0.2},
		{Name: "fake.huge", VCPUs: 64, Memory: 262144, Arch: arch, Zones: []string{"b"}, Price: 1.6},
		{Name: "fake.gpu", VCPUs: 8, Memory: 32768, GPUs: 1, GPU: "fake", Arch: arch, Zones: []string{"b"}, Price: 2},
		{Name: "fake.foreign", VCPUs: 4, Memory: 8192, Arch: foreign, Zones: []string{"a"}, Price: 0.04},
	}
}

// Cloud is one connection to a cloud. It implements provider.Provider and
// every optional capability but provider.NodeAddresser.
type Cloud struct {
	options Options
	store   store
	script  script
	revoked bool

	mu      sync.Mutex
	closed  bool
	booting map[string]context.CancelCauseFunc // by instance id
}

var (
	_ provider.Provider           = (*Cloud)(nil)
	_ provider.Lister             = (*Cloud)(nil)
	_ provider.Getter             = (*Cloud)(nil)
	_ provider.ConsoleReader      = (*Cloud)(nil)
	_ provider.PowerController    = (*Cloud)(nil)
	_ provider.InstanceTypeLister = (*Cloud)(nil)

	_ provider.LoadBalancerController = (*Cloud)(nil)
	_ provider.DiskController         = (*Cloud)(nil)
	_ provider.DiskSnapshotter        = (*Cloud)(nil)
)

// New makes a cloud, or with [Options.Dir] connects to the one that is there.
// Options that contradict each other are ErrInvalidArgument.
func New(options Options) (*Cloud, error) {
	if err := options.complete(); err != nil {
		return nil, fmt.Errorf("fake: %w", err)
	}
	if options.Dir == "" {
		return connect(options, newMemory()), nil
	}
	store, err := openFolder(options.Dir)
	if err != nil {
		return nil, fmt.Errorf("fake: %w", err)
	}
	return connect(options, store), nil
}

func connect(options Options, store store) *Cloud {
	c := &Cloud{options: options, store: store, booting: map[string]context.CancelCauseFunc{}}
	c.Inject(options.Faults...)
	return c
}

// Reopen returns a second connection to the same cloud, as a new process would make:
// with the same options but without faults.
func (c *Cloud) Reopen() *Cloud {
	options := c.options
	options.Faults = nil
	return connect(options, c.store)
}

// Revoked returns a second connection whose credentials are no longer valid: every
// call fails with ErrUnauthenticated and does nothing.
func (c *Cloud) Revoked() *Cloud {
	other := c.Reopen()
	other.revoked = true
	return other
}

func (o *Options) complete() error {
	if !o.Network.IsValid() {
		o.Network = netip.MustParsePrefix("198.18.0.0/15")
	}
	if len(o.Types) == 0 {
		o.Types = DefaultTypes()
	}
	if o.DefaultType == "" {
		o.DefaultType = o.Types[0].Name
	}
	if len(o.Images) == 0 {
		o.Images = []string{"podvm"}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if !slices.ContainsFunc(o.Types, func(t provider.InstanceType) bool { return t.Name == o.DefaultType }) {
		return fmt.Errorf("%w: the default type %q is not in the list", provider.ErrInvalidArgument, o.DefaultType)
	}
	if o.Capacity < 0 || o.Latency < 0 {
		return fmt.Errorf("%w: capacity %d and latency %s must not be negative", provider.ErrInvalidArgument, o.Capacity, o.Latency)
	}
	return o.Disks.complete()
}

// Teardown closes this connection. The cloud and its instances stay; other
// calls on the connection fail with ErrInvalidArgument from then on.
func (c *Cloud) Teardown() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

// ConfigVerifier implements provider.Provider.
func (c *Cloud) ConfigVerifier() error { return c.VerifyConfig(context.Background()) }

// VerifyConfig finds nothing wrong unless the script says so.
func (c *Cloud) VerifyConfig(ctx context.Context) error {
	fault, err := c.begin(ctx, OpVerify)
	if err != nil {
		return err
	}
	return fault.reply(OpVerify)
}

// answer makes a call that asks the cloud's state: what f returns is the answer, unless a
// fault has another.
func answer[R any](ctx context.Context, c *Cloud, op Op, f func(*state) (R, error)) (R, error) {
	var result, none R
	fault, err := c.begin(ctx, op)
	if err != nil {
		return none, err
	}
	err = c.store.update(func(s *state) (err error) {
		result, err = f(s)
		return err
	})
	if reply := fault.reply(op); reply != nil {
		err = reply
	}
	if err != nil {
		return none, err
	}
	return result, nil
}

// begin does what every call does first: it counts the call, takes the next fault and
// waits as long as that says. It returns an error if the fault strikes before the
// work.
func (c *Cloud) begin(ctx context.Context, op Op) (Fault, error) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return Fault{}, fmt.Errorf("fake: %w: %s after Teardown", provider.ErrInvalidArgument, op)
	}
	fault := c.script.next(op)
	if c.revoked {
		return fault, fmt.Errorf("fake: %s: %w: the credentials have been revoked", op, provider.ErrUnauthenticated)
	}
	if err := fault.wait(ctx, c.options.Latency); err != nil {
		return fault, fmt.Errorf("fake: %s: %w: %w", op, provider.ErrUnavailable, err)
	}
	if fault.Effect == EffectNone && fault.Err != nil {
		return fault, fault.reply(op)
	}
	return fault, nil
}
