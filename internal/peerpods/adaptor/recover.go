// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/provider"
)

// Recover takes over what earlier processes left. Sandboxes that are ready or
// created are kept; all others are removed in the background, since shims do
// not retry. Call it once, before the first request.
func (s *Service) Recover(ctx context.Context) error {
	records, bad, err := s.journal.load()
	if err != nil {
		return err
	}
	if err := s.checkProvider(records); err != nil {
		return err
	}
	served, err := s.served(ctx)
	if err != nil {
		return fmt.Errorf("ask the agent relay what it serves: %w", err)
	}
	for _, rec := range records {
		if rec.Pooled && rec.State != StateStopping && !s.keepPooled(rec, records) {
			rec.State = StateStarting // as if it were not finished: it is removed
		}
		s.takeOver(rec, served)
		delete(served, rec.ID)
	}
	for _, damage := range bad {
		s.takeOverDamaged(damage)
		delete(served, damage.ID)
	}
	return s.stopServing(ctx, served)
}

// checkProvider refuses records that this provider cannot undo.
func (s *Service) checkProvider(records []*Record) error {
	others := map[string]int{}
	for _, rec := range records {
		if rec.Provider != s.opts.ProviderName {
			others[rec.Provider]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		return fmt.Errorf("%s holds %d sandbox(es) of provider %s: start the adaptor with %s again and remove them, or choose another -pods-dir", s.opts.PodsDir, others[name], name, name)
	}
	return nil
}

func (s *Service) served(ctx context.Context) (map[string]*relaypb.Served, error) {
	list, err := s.opts.Relay.List(ctx)
	if err != nil {
		return nil, err
	}
	served := make(map[string]*relaypb.Served, len(list))
	for _, one := range list {
		served[one.GetId()] = one
	}
	return served, nil
}

func (s *Service) takeOver(rec *Record, served map[string]*relaypb.Served) {
	rec.Step = furthest(rec.Step)
	sb := newSandbox(*rec)
	sb.onDisk = true
	s.adopt(sb)
	s.observe(sb, Change{Kind: ChangeKept})
	log := s.logger(sb).With("state", rec.State, "step", rec.Step)
	switch rec.State {
	case StateCreated:
		log.Info("kept a sandbox")
	case StateReady:
		log.Info("kept a sandbox", "instance", rec.InstanceID)
		if served[rec.ID] == nil {
			s.serveAgain(sb)
		}
	case StateWaiting:
		log.Info("kept a VM of the pool", "instance", rec.InstanceID, "claimed-by", rec.ClaimedBy)
	case StateStopping:
		log.Info("going on with the removal of a sandbox")
		s.remove(sb)
	default:
		log.Warn("removing a sandbox that an earlier process was starting")
		s.beginStop(sb, errStopped)
	}
}

// keepPooled reports whether a VM of this node's pool stays: it waits, or a pod is ready in it.
// One that a pod had claimed and did not come to use may know that pod's secrets.
func (s *Service) keepPooled(rec *Record, records []*Record) bool {
	if rec.State != StateWaiting {
		return false
	}
	if rec.ClaimedBy == "" {
		return s.pool != nil
	}
	return slices.ContainsFunc(records, func(pod *Record) bool {
		return pod.ID == rec.ClaimedBy && pod.PoolVM == rec.ID && pod.State == StateReady
	})
}

// adopt lists the sandbox and takes its tunnel id out of the pool.
func (s *Service) adopt(sb *sandbox) {
	s.mu.Lock()
	s.sandboxes[sb.id] = sb
	s.mu.Unlock()
	cfg := sb.snapshot().Network
	if cfg == nil || cfg.VXLANID == 0 {
		return
	}
	if err := s.opts.VNIs.Reserve(uint32(cfg.VXLANID)); err != nil {
		s.logger(sb).Warn("the sandbox's tunnel id is taken", "vni", cfg.VXLANID, "error", err)
	}
}

// takeOverDamaged removes what a sandbox may have whose record is unreadable:
// only its key is known. Its tunnel ends inside the pod's own namespace and
// goes away with that.
func (s *Service) takeOverDamaged(damage damaged) {
	s.opts.Log.Error("the record of a sandbox is damaged; it is kept aside and the sandbox's instance is searched for by its key and removed",
		"sandbox", damage.ID, "moved-to", damage.MovedTo, "error", damage.Err)
	tags := maps.Clone(s.owner)
	tags[provider.TagKey] = provider.TagValue(damage.ID)
	sb := newSandbox(Record{
		Format:   recordFormat,
		ID:       damage.ID,
		State:    StateStarting,
		Step:     stepConnect,
		Created:  s.opts.Now().Round(0),
		Asked:    s.opts.Now().Round(0),
		Provider: s.opts.ProviderName,
		Spec:     provider.InstanceTypeSpec{Tags: tags},
	})
	sb.onDisk = true // so that the removal is recorded in the old one's place
	s.adopt(sb)
	s.beginStop(sb, errStopped)
}

// serveAgain makes the relay serve a sandbox that it has lost, as after a
// crash of the relay.
func (s *Service) serveAgain(sb *sandbox) {
	if !sb.serving.CompareAndSwap(false, true) {
		return
	}
	s.work.Go(func() {
		defer sb.serving.Store(false)
		ctx, interrupt, finish, err := s.call(s.calls)
		if err != nil {
			return
		}
		defer finish()
		release, err := sb.acquire(ctx)
		if err != nil {
			return
		}
		defer release()
		sb.mu.Lock()
		sb.interrupt = interrupt
		ready := sb.rec.State == StateReady
		sb.mu.Unlock()
		if !ready {
			return
		}
		s.logger(sb).Warn("the agent relay does not serve the sandbox; serving it again")
		if err := s.connect(ctx, sb); err != nil && ctx.Err() == nil {
			sb.update(func(rec *Record) { rec.LastError = err.Error() })
			s.logger(sb).Error("the sandbox has no agent relay", "error", err)
		}
	})
}

// stopServing stops the relay from serving sandboxes that the journal does not
// have.
func (s *Service) stopServing(ctx context.Context, unknown map[string]*relaypb.Served) error {
	var problems []error
	for id, served := range unknown {
		if !strings.HasPrefix(served.GetSocketPath(), s.opts.PodsDir+"/") {
			continue
		}
		s.opts.Log.Warn("the agent relay serves an unknown sandbox; stopping that", "sandbox", id)
		if err := s.opts.Relay.Stop(ctx, id); err != nil {
			problems = append(problems, fmt.Errorf("stop serving unknown sandbox %s: %w", id, err))
		}
	}
	return errors.Join(problems...)
}
