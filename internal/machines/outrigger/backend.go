// SPDX-License-Identifier: Apache-2.0

// Package outrigger is the backend of the kinds OutriggerCluster and
// OutriggerMachine: any provider of package provider.
//
// A machine is an instance whose idempotency key is the machine's. Calls that
// make or remove one may take long and run in the background; they need no
// persistent state, since both can be repeated with the key. One list for each
// cluster shows whether its machines still exist.
package outrigger

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

// Options configure a backend. Zero durations have defaults.
type Options struct {
	// Name is the provider's, as in providerIDs.
	Name string
	// Provider makes the instances of machines that ask for no failure domain.
	Provider provider.Provider
	// Domains are the failure domains: for each the same provider, configured
	// to make its instances there.
	Domains map[string]provider.Provider
	// DomainPrefix is what --failure-domain has before the name of a domain of this
	// provider.
	DomainPrefix string
	// Enqueuer enqueues OutriggerMachines that have news.
	Enqueuer *reconciler.Enqueuer
	// Observe, if any, is called after every call.
	Observe func(Call)

	// CreateTimeout bounds the creation of an instance: 15 minutes.
	CreateTimeout time.Duration
	// CallTimeout bounds every other call: 1 minute.
	CallTimeout time.Duration
	// Interval is how often machines are looked at: 1 minute.
	Interval time.Duration
	// Settle is how long a cloud may take to show a new instance: 30 seconds.
	// So long is waited for one that may have been made, and for which no reply
	// came, before its machine is gone.
	Settle time.Duration
	Now    func() time.Time
	// Elapsed is the time since some moment. Unlike Now it never jumps, neither with
	// the clock of this machine nor with that of the API server.
	Elapsed func() time.Duration
}

// Call is a finished call to a provider.
type Call struct {
	Provider, Operation string
	Took                time.Duration
	Err                 error
}

func (o *Options) complete() {
	for value, standard := range map[*time.Duration]time.Duration{
		&o.CreateTimeout: 15 * time.Minute, &o.CallTimeout: time.Minute, &o.Interval: time.Minute, &o.Settle: 30 * time.Second,
	} {
		if *value == 0 {
			*value = standard
		}
	}
	if o.Enqueuer == nil {
		o.Enqueuer = &reconciler.Enqueuer{}
	}
	if o.Observe == nil {
		o.Observe = func(Call) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Elapsed == nil {
		began := time.Now()
		o.Elapsed = func() time.Duration { return time.Since(began) }
	}
}

// Backend implements [reconciler.ClusterBackend] and [reconciler.MachineBackend].
type Backend struct {
	options Options
	fleet   fleet

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	machines map[string]*machine   // by key
	lists    map[string]*inventory // by cluster key

	sizes     sync.Mutex // of the catalogue, which is held while it is asked for
	catalogue *catalogue
}

var (
	_ reconciler.ClusterBackend = (*Backend)(nil)
	_ reconciler.MachineBackend = (*Backend)(nil)
	_ reconciler.Forgetter      = (*Backend)(nil)
	_ reconciler.Inventory      = (*Backend)(nil)
)

// machine is the state of one machine in memory, all of which can be rebuilt.
type machine struct {
	name   types.NamespacedName
	create *task
	remove *task
	// seen is when this process first handled the machine, and asked when it first
	// handled its deletion, both by [Options.Elapsed]. Processes before this one,
	// which may have asked for instances, had ended by then.
	seen  time.Duration
	asked *time.Duration
}

// New returns a backend. The provider MUST be able to list and look up
// instances: what was made and not recorded is found by its tags alone.
func New(o Options) (*Backend, error) {
	o.complete()
	all := append([]provider.Provider{o.Provider}, values(o.Domains)...)
	for _, p := range all {
		_, lists := provider.As[provider.Lister](p)
		_, gets := provider.As[provider.Getter](p)
		if !lists || !gets {
			return nil, fmt.Errorf("%w: provider %s cannot list and look up instances (capabilities Lister and Getter), which machines need: instances that were made in the moment a manager ended would never be found again", provider.ErrUnimplemented, o.Name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Backend{
		options: o, fleet: fleet{options: &o, all: all}, ctx: ctx, cancel: cancel,
		machines: map[string]*machine{}, lists: map[string]*inventory{},
	}, nil
}

// Close ends all calls and waits for their end.
func (b *Backend) Close() {
	b.cancel()
	b.work.Wait()
}

// Forget cancels a creation for an object that is gone. Existing instances
// stay: the same object may live in another management cluster.
func (b *Backend) Forget(name types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, m := range b.machines {
		if m.name != name {
			continue
		}
		m.create.end()
		m.remove.end()
		delete(b.machines, key)
	}
}

// machine returns the state of a machine; the lock is held.
func (b *Backend) machine(s *reconciler.MachineScope) *machine {
	m := b.machines[s.Key]
	if m == nil {
		m = &machine{seen: b.options.Elapsed()}
		b.machines[s.Key] = m
	}
	m.name = types.NamespacedName{Namespace: s.Infra.GetNamespace(), Name: s.Infra.GetName()}
	return m
}

// task is a call in the background. Its result may be read once done is closed.
type task struct {
	cancel context.CancelFunc
	done   chan struct{}

	instance *provider.Instance
	gone     bool
	err      error
	// ended is by [Options.Elapsed].
	ended time.Duration
}

// start runs f until it ends, the backend is closed, or somebody ends it.
func (b *Backend) start(name types.NamespacedName, timeout time.Duration, f func(context.Context, *task)) *task {
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	t := &task{cancel: cancel, done: make(chan struct{})}
	b.work.Go(func() {
		defer cancel()
		f(ctx, t)
		t.ended = b.options.Elapsed()
		close(t.done)
		b.options.Enqueuer.Enqueue(name)
	})
	return t
}

func (t *task) running() bool {
	if t == nil {
		return false
	}
	select {
	case <-t.done:
		return false
	default:
		return true
	}
}

// end cancels the call and does not wait for it.
func (t *task) end() {
	if t != nil {
		t.cancel()
	}
}
