// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/peerpods/handover"
	adaptorpb "github.com/outrigger/outrigger/internal/protocol/adaptor"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// poolStarting is how many VMs of the pool are made or boot at the same time.
	poolStarting = 4
	// poolRest is the pause before a VM is made in place of one that was taken: its pod
	// starts a container meanwhile, and has the processors of a small machine for itself.
	poolRest = time.Second
	// poolPeriod is when the pool is looked at without any event.
	poolPeriod = time.Minute
	// poolNamespace stands for the namespace of pods in the records of VMs that wait.
	poolNamespace = "outrigger-pool"
)

// Pool is what VMs wait on this node for its next pods.
type Pool struct {
	Size int
	Spec provider.InstanceTypeSpec
}

// ownPool is the pool of a node without Kubernetes. Each VM of it is a sandbox, with the
// steps, journal and removal of any other, that has no network and no agent's channel, and
// ends as StateWaiting. A pod's sandbox claims it by a word in its record, and removes it with
// its own instance.
type ownPool struct {
	*Service
	spec provider.InstanceTypeSpec

	// mu makes claims and what is to be removed one decision after the other.
	mu       sync.Mutex
	size     int
	hits     int64
	failures handover.Failures
	last     error
}

func newOwnPool(s *Service) *ownPool {
	if s.opts.Pool.Size == 0 {
		return nil
	}
	p := &ownPool{Service: s, size: s.opts.Pool.Size, spec: s.opts.Pool.Spec}
	p.spec.Arch = runtime.GOARCH
	return p
}

// run keeps the pool filled until ctx ends.
func (p *ownPool) run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := p.changes()
		select {
		case <-time.After(p.fill()):
		case <-changed:
		case <-ctx.Done():
		}
		poll.Sleep(ctx, poolRest)
	}
}

// members returns the VMs that nobody has claimed and that are not being removed, those that
// wait first, of them the oldest.
func (p *ownPool) members() (list []*sandbox, waiting int) {
	records := map[*sandbox]Record{}
	for _, sb := range p.all() {
		rec := sb.snapshot()
		if !rec.Pooled || rec.ClaimedBy != "" || rec.State == StateStopping {
			continue
		}
		if rec.State == StateWaiting {
			waiting++
		}
		records[sb], list = rec, append(list, sb)
	}
	slices.SortFunc(list, func(a, b *sandbox) int {
		x, y := records[a], records[b]
		if (x.State == StateWaiting) != (y.State == StateWaiting) {
			return cmp.Compare(y.State, x.State) // "waiting" is behind all others
		}
		return x.Created.Compare(y.Created)
	})
	return list, waiting
}

// fill brings the number of VMs to what it is to be, and returns when to look again.
func (p *ownPool) fill() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	members, waiting := p.members()
	for _, sb := range members[min(p.size, len(members)):] {
		p.beginStop(sb, errStopped)
	}
	if pause := p.failures.Pause(p.opts.Now()); pause > 0 {
		return pause
	}
	for range min(p.size-len(members), poolStarting-(len(members)-waiting)) {
		sb, err := p.begin(p.calls, p.newVM())
		if err != nil {
			p.note(err)
			break
		}
		if p.enter() == nil {
			go p.boot(sb)
		}
	}
	return poolPeriod
}

func (p *ownPool) newVM() Record {
	var id [16]byte
	rand.Read(id[:])
	return Record{
		Format: recordFormat, ID: hex.EncodeToString(id[:]), State: StateCreating, Step: stepInspectNetwork, Created: p.opts.Now().Round(0),
		Provider: p.opts.ProviderName, PodName: "pool", PodNamespace: poolNamespace, Pooled: true, Spec: p.spec,
	}
}

// boot brings a VM to where it waits.
func (p *ownPool) boot(sb *sandbox) {
	defer p.work.Done()
	ctx, cancel := context.WithTimeout(p.calls, handover.BootLimit)
	defer cancel()
	err := p.start(ctx, sb)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(err)
	p.announce()
}

// note remembers how making a VM ended. The caller holds mu.
func (p *ownPool) note(err error) {
	switch {
	case err == nil:
		p.failures, p.last = handover.Failures{}, nil
	case !errors.Is(err, errStopped) && !errors.Is(err, errShutdown):
		p.failures.Add(err, p.opts.Now())
		p.last = err
		p.opts.Log.Warn("a VM of the pool could not be made", "again-in", p.failures.Pause(p.opts.Now()), "error", err)
	}
}

// replace removes a VM that has ended, unless a pod claimed it meanwhile.
func (p *ownPool) replace(sb *sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sb.snapshot().ClaimedBy == "" {
		p.beginStop(sb, errEnded)
	}
}

// awaitPooled returns when the VM waits for a pod.
func (s *Service) awaitPooled(ctx context.Context, rec *Record) error {
	vm, err := rec.poolVM()
	if err != nil {
		return err
	}
	running, stop := s.whileRunning(ctx, rec.InstanceID)
	defer stop()
	for {
		err := s.sendTo(running, handover.ProbeTimeout, vm, nil)
		if err == nil {
			return nil
		}
		if poll.Sleep(running, handover.ProbePause(s.opts.Now().Sub(rec.Created))) != nil {
			return errors.Join(context.Cause(running), err)
		}
	}
}

// poolVM returns how this node reaches a VM that waits.
func (r *Record) poolVM() (*PoolVM, error) {
	if r.TLS == nil {
		return nil, fmt.Errorf("sandbox %s has no certificates on record", r.ID)
	}
	node, err := tls.X509KeyPair([]byte(r.TLS.ClientCert), []byte(r.TLS.ClientKey))
	if err != nil {
		return nil, fmt.Errorf("certificate on record: %w", err)
	}
	instance := provider.Instance{ID: r.InstanceID, IPs: r.Addresses, Type: r.InstanceType, Zone: r.Zone}
	return &PoolVM{Name: r.ID, ServerName: r.InstanceName, Instance: instance, Authority: r.TLS.CA, Node: node}, nil
}

// TakeVM claims a VM for a sandbox; nil when none waits that fits. The claim is on disk
// when it returns, and is never taken back.
func (p *ownPool) TakeVM(ctx context.Context, rec Record) (*PoolVM, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	members, waiting := p.members()
	for _, sb := range members[:waiting] {
		of := sb.snapshot()
		if !Fits(&of.Spec, &rec.Spec) || p.seesEnded() && p.hasEnded(ctx, &of) { // watchEnded removes it
			continue
		}
		sb.update(func(r *Record) { r.ClaimedBy = rec.ID })
		p.hits++
		defer p.announce()
		vm, err := of.poolVM()
		if err = errors.Join(p.persist(sb), err); err != nil {
			p.beginStop(sb, err)
			return nil, err
		}
		return vm, nil
	}
	return nil, nil
}

// DropVM removes the VM that a sandbox has claimed.
func (p *ownPool) DropVM(_ context.Context, rec Record, why error) error {
	p.dropClaimed(&rec, why)
	return nil
}

// dropClaimed removes the VM of this node's pool that a sandbox has, if any, and returns what
// is closed when it is gone.
func (s *Service) dropClaimed(rec *Record, why error) <-chan struct{} {
	vm := s.find(rec.PoolVM)
	if vm == nil || vm.snapshot().ClaimedBy != rec.ID {
		gone := make(chan struct{})
		close(gone)
		return gone
	}
	s.beginStop(vm, why)
	return vm.gone
}

// Pool implements the service Adaptor.
func (s *Service) Pool(ctx context.Context, req *adaptorpb.PoolRequest) (*adaptorpb.PoolResponse, error) {
	if s.pool == nil {
		return nil, status.Error(codes.NotFound, "this adaptor has no pool (-pool-size)")
	}
	if req.GetDrain() {
		if err := s.pool.drain(ctx); err != nil {
			return nil, wire(err)
		}
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	members, waiting := s.pool.members()
	resp := &adaptorpb.PoolResponse{Size: int32(s.pool.size), Ready: int32(waiting), Starting: int32(len(members) - waiting), Hits: s.pool.hits}
	if s.pool.last != nil {
		resp.LastError = s.pool.last.Error()
	}
	return resp, nil
}

// drain removes all VMs that no pod has, and returns when they are gone.
func (p *ownPool) drain(ctx context.Context) error {
	p.mu.Lock()
	p.size = 0
	p.mu.Unlock()
	p.fill()
	for _, sb := range p.all() {
		if rec := sb.snapshot(); !rec.Pooled || rec.ClaimedBy != "" {
			continue
		}
		select {
		case <-sb.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.calls.Done():
			return errShutdown
		}
	}
	return nil
}
