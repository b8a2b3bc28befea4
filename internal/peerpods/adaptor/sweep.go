// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Run looks for orphans until ctx ends or the service is closed: sandboxes without a client and, with a
// cluster id, instances without a sandbox.
func (s *Service) Run(ctx context.Context) {
	if s.enter() != nil {
		return
	}
	defer s.work.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.calls, cancel)()
	orphans := time.NewTicker(s.opts.SweepInterval)
	defer orphans.Stop()
	unknown := time.NewTicker(s.opts.SweepGrace / 2)
	defer unknown.Stop()
	watch := make(chan struct{})
	go func() {
		defer close(watch)
		s.watchEnded(ctx)
	}()
	defer func() { cancel(); <-watch }()
	if s.pool != nil {
		filled := make(chan struct{})
		go func() {
			defer close(filled)
			s.pool.run(ctx)
		}()
		defer func() { cancel(); <-filled }()
	}
	s.sweepInstances(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-orphans.C:
			s.sweepSandboxes(ctx)
		case <-unknown.C:
			s.sweepInstances(ctx)
		}
	}
}

// sweepSandboxes stops sandboxes that no client will ever use or stop.
func (s *Service) sweepSandboxes(ctx context.Context) {
	served, err := s.served(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.opts.Log.Warn("the agent relay does not answer", "error", err)
		}
		return
	}
	for _, sb := range s.all() {
		rec := sb.snapshot()
		reason := ""
		switch rec.State {
		case StateCreated:
			reason = s.orphanedBeforeStart(&rec)
		case StateReady:
			reason = s.orphaned(sb, &rec, served[rec.ID])
		}
		if reason != "" {
			s.logger(sb).Warn("stopping an orphaned sandbox", "reason", reason)
			s.beginStop(sb, errStopped)
		}
	}
}

// orphanedBeforeStart returns why no StartVM will come; empty when one may. A
// failing or crashing CreateVM is not followed by StopVM.
func (s *Service) orphanedBeforeStart(rec *Record) string {
	if rec.Netns == "" {
		if s.opts.OrphanTimeout > 0 && s.opts.Now().Sub(rec.Created) > s.opts.OrphanTimeout {
			return "it was created but not started within -orphan-timeout"
		}
		return ""
	}
	if _, err := os.Stat(rec.Netns); errors.Is(err, fs.ErrNotExist) {
		return "its network namespace is gone"
	}
	return ""
}

// orphaned returns why a ready sandbox has lost its pod; empty when it has not.
func (s *Service) orphaned(sb *sandbox, rec *Record, served *relaypb.Served) string {
	now := s.opts.Now()
	if served == nil {
		if sb.unserved.IsZero() {
			sb.unserved = now
		}
		if s.tooLong(rec, sb.unserved, now) {
			return "the agent relay could not serve it for longer than -orphan-timeout"
		}
		if !sb.ended.Load() {
			s.serveAgain(sb)
		}
		return ""
	}
	sb.unserved = time.Time{}
	if served.GetClients() > 0 || served.GetIdleSinceUnixNano() == 0 {
		return ""
	}
	if s.tooLong(rec, time.Unix(0, served.GetIdleSinceUnixNano()), now) {
		return "it had no client for longer than -orphan-timeout"
	}
	return ""
}

func (s *Service) tooLong(rec *Record, since, now time.Time) bool {
	return s.opts.OrphanTimeout > 0 && !rec.KeepIdle && now.Sub(since) > s.opts.OrphanTimeout
}

// sweepInstances deletes this node's instances that no sandbox knows.
func (s *Service) sweepInstances(ctx context.Context) {
	lister, ok := provider.As[provider.Lister](s.opts.Provider)
	if !ok || s.opts.ClusterID == "" || s.opts.NodeName == "" {
		return
	}
	instances, err := lister.ListInstances(ctx, s.owner)
	if err != nil {
		if ctx.Err() == nil {
			s.opts.Log.Warn("cannot look for instances without a sandbox", "error", redact.Error(err, nil))
		}
		return
	}
	seen := map[string]time.Time{}
	for _, instance := range instances {
		// Others are never touched, even if the cloud lists them.
		if !provider.HasTags(instance.Tags, s.owner) || instance.Key == "" || s.find(instance.Key) != nil || s.onOtherRecord(instance.Key) {
			continue
		}
		since := s.firstSeen(&instance)
		seen[instance.ID] = since
		if s.opts.Now().Sub(since) > s.opts.SweepGrace {
			log := s.opts.Log.With("sandbox", instance.Key, "instance", instance.ID)
			log.Warn("deleting an instance of this node that no sandbox knows", "name", instance.Name)
			if err := s.deleteOne(ctx, instance.ID); err != nil {
				log.Warn("the instance is not deleted yet", "error", err)
			}
		}
	}
	s.unknownSince = seen
}

// onOtherRecord reports whether another adaptor of this machine has the sandbox.
func (s *Service) onOtherRecord(id string) bool {
	return checkID(id) == nil && slices.ContainsFunc(s.opts.OtherPods, func(pattern string) bool {
		found, err := filepath.Glob(filepath.Join(pattern, id, recordFile))
		return len(found) > 0 || err != nil
	})
}

// firstSeen returns when the instance was made, as far as that is known. One
// that is being deleted gets the whole grace period, however old it is; after
// that it is taken for the remains of a failed deletion, which only another
// deletion removes.
func (s *Service) firstSeen(instance *provider.Instance) time.Time {
	deleting := instance.State == provider.StateDeleting
	if !deleting && !instance.Created.IsZero() {
		return instance.Created
	}
	if created, err := time.Parse(time.RFC3339, instance.Tags[provider.TagCreated]); !deleting && err == nil {
		return created
	}
	if since, ok := s.unknownSince[instance.ID]; ok {
		return since
	}
	return s.opts.Now()
}

// errEnded is why waiting for an agent is over before its time.
var errEnded = errors.New("the VM has ended and will not answer any more")

// whileRunning derives a context that ends, with errEnded as its cause, when
// the cloud says that the instance has stopped: a guest that panics would
// otherwise be waited for until ProxyTimeout. An instance that the cloud does
// not know yet, and a cloud that does not answer, change nothing. Call stop in
// any case.
func (s *Service) whileRunning(ctx context.Context, instance string) (running context.Context, stop func()) {
	running, end := context.WithCancelCause(ctx)
	getter, ok := provider.As[provider.Getter](s.opts.Provider)
	if !ok {
		return running, func() { end(nil) }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for poll.Sleep(running, s.opts.WatchInterval) == nil {
			i, err := getter.GetInstance(running, instance)
			if err == nil && over(i) {
				end(errEnded)
			}
		}
	}()
	return running, func() { end(nil); <-done }
}

// watchEnded closes the agent channel of ready sandboxes whose VM has ended, so that shims
// notice at once and not after most of a minute without a reply. It does so only where
// that needs no call to a cloud: with providers whose VMs are on a bridge of this node.
func (s *Service) watchEnded(ctx context.Context) {
	if !s.seesEnded() {
		return
	}
	for poll.Sleep(ctx, s.opts.EndedInterval) == nil {
		for _, sb := range s.all() {
			rec := sb.snapshot()
			waits := rec.State == StateWaiting && rec.ClaimedBy == ""
			if rec.State != StateReady && !waits || sb.ended.Load() {
				continue
			}
			if !s.hasEnded(ctx, &rec) {
				continue
			}
			sb.ended.Store(true)
			if waits {
				s.pool.replace(sb)
				continue
			}
			s.logger(sb).Warn("the VM has ended; its pod's agent channel is closed", "instance", rec.InstanceID)
			if err := s.opts.Relay.Stop(ctx, sb.id); err != nil {
				sb.ended.Store(false) // next time
			}
		}
	}
}

// seesEnded reports whether VMs are on this node, so that no call to a cloud is needed to see
// that one has ended.
func (s *Service) seesEnded() bool {
	_, local := provider.As[provider.NodeAddresser](s.opts.Provider)
	return local && provider.Has(s.opts.Provider, provider.CapabilityGet)
}

func (s *Service) hasEnded(ctx context.Context, rec *Record) bool {
	getter, _ := provider.As[provider.Getter](s.opts.Provider)
	i, err := getter.GetInstance(ctx, rec.InstanceID)
	return errors.Is(err, provider.ErrNotFound) || err == nil && over(i)
}

func over(i *provider.Instance) bool {
	return i.State == provider.StateStopped || i.State == provider.StateDeleting
}
