// SPDX-License-Identifier: Apache-2.0

// Package adaptor keeps the pod VMs of one node: it serves the remote
// hypervisor protocol of Kata shims over a provider.
//
// A sandbox is one pod's VM and everything that belongs to it on this node. It
// is made by the named steps in steps.go, in order, and removed by undoing them
// in reverse; both directions are idempotent. What was begun is on disk
// (journal.go) before it is done, so a new process after a crash knows what
// there is: it keeps the sandboxes that are ready and undoes those that were in
// an intermediate state (recover.go).
//
//	CreateVM:  inspect-network, reserve, record-intent
//	StartVM:   claim, create-instance, tunnel, connect, ready
//	StopVM:    all of it in reverse
package adaptor

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Service holds the sandboxes of one node. Make it with New, then Recover,
// then Register it on a server and Run it; Close it last.
type Service struct {
	opts    Options
	journal *journal
	// owner tags everything that this node makes.
	owner map[string]string

	// ctx ends removals; calls ends CreateVM and StartVM, which comes first.
	ctx      context.Context
	cancel   context.CancelCauseFunc
	calls    context.Context
	endCalls context.CancelCauseFunc
	// work counts calls and the goroutines they leave behind.
	work sync.WaitGroup

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	closed    bool
	pool      *ownPool // nil without one
	// changed is closed and replaced whenever a sandbox gets an instance.
	changed chan struct{}

	// unknownSince is since when an instance of unknown age is known, by its id.
	unknownSince map[string]time.Time
}

// New checks the options and locks the journal. It fails when another process
// has locked it.
func New(opts Options) (*Service, error) {
	if err := opts.Check(); err != nil {
		return nil, err
	}
	if opts.Provider == nil || opts.Network == nil || opts.VNIs == nil || opts.Relay == nil {
		return nil, errors.New("adaptor: provider, network, VNIs and relay are required")
	}
	opts.PodsDir = filepath.Clean(opts.PodsDir)
	journal, err := openJournal(opts.PodsDir)
	if err != nil {
		return nil, err
	}
	s := &Service{
		opts:      opts,
		journal:   journal,
		owner:     ownerTags(opts.ClusterID, opts.NodeName),
		sandboxes: map[string]*sandbox{},
		changed:   make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.calls, s.endCalls = context.WithCancelCause(s.ctx)
	s.pool = newOwnPool(s)
	return s, nil
}

// Close ends running calls and removals and unlocks the journal. Sandboxes that
// are ready stay as they are; removals that ctx does not leave time for are
// finished by the next process. Only the first call does something.
func (s *Service) Close(ctx context.Context) error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if again {
		return nil
	}
	s.endCalls(errShutdown)
	finished := make(chan struct{})
	go func() { s.work.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-ctx.Done():
	}
	s.cancel(errShutdown)
	<-finished
	return s.journal.lock.Close()
}

// enter counts the caller as work that Close waits for; it calls work.Done
// when it has finished.
func (s *Service) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errShutdown
	}
	s.work.Add(1)
	return nil
}

func (s *Service) find(id string) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sandboxes[id]
}

// all returns every sandbox, by id.
func (s *Service) all() []*sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.sandboxes), func(a, b *sandbox) int { return strings.Compare(a.id, b.id) })
}

// add puts a new sandbox on the list; it is an error if its id is taken.
func (s *Service) add(sb *sandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.sandboxes[sb.id]; old != nil {
		return status.Errorf(codes.AlreadyExists, "sandbox %s exists already (%s); remove it with StopVM first", sb.id, old.snapshot().State)
	}
	s.sandboxes[sb.id] = sb
	return nil
}

func (s *Service) drop(sb *sandbox) {
	s.mu.Lock()
	delete(s.sandboxes, sb.id)
	s.mu.Unlock()
	close(sb.gone)
	s.announce()
}

// announce wakes all goroutines that wait for an instance.
func (s *Service) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Service) changes() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// agentSocket returns the path of the socket at which a shim reaches the sandbox's
// agent.
func (s *Service) agentSocket(id string) string {
	return filepath.Join(s.journal.folder(id), "agent.ttrpc")
}

func (s *Service) logger(sb *sandbox) *slog.Logger {
	rec := sb.snapshot()
	return s.opts.Log.With("sandbox", rec.ID, "pod", rec.PodName, "namespace", rec.PodNamespace)
}

// maxSocketPath is what fits into sockaddr_un with its final zero (unix(7)).
const maxSocketPath = 107

// checkID reports whether id may name a folder.
func checkID(id string) error {
	switch {
	case id == "":
		return invalid("the sandbox id is empty")
	case !podNamePattern.MatchString(id):
		return invalid("sandbox id %q is not made of letters, digits, '-', '_' and '.' only, or is longer than 253 characters", shorten(id, 80))
	}
	return nil
}
