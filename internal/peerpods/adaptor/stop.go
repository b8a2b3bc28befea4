// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"errors"
	"slices"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

// beginStop starts the sandbox's removal, once: it puts it on record, ends
// what runs on the sandbox and undoes everything in the background.
func (s *Service) beginStop(sb *sandbox, cause error) {
	sb.mu.Lock()
	if sb.rec.State == StateStopping {
		sb.mu.Unlock()
		return
	}
	sb.rec.State = StateStopping
	recorded, interrupt := sb.onDisk, sb.interrupt
	sb.mu.Unlock()

	s.opts.Hook(Point{BeforeRecord, pointStopping})
	if recorded {
		if err := s.persist(sb); err != nil {
			s.logger(sb).Warn("the removal could not be recorded; it continues", "error", err)
		}
	}
	s.opts.Hook(Point{AfterRecord, pointStopping})
	s.observe(sb, Change{Kind: ChangeStopping, Err: cause})
	if interrupt != nil {
		interrupt(cause)
	}
	s.remove(sb)
}

// remove undoes everything in the background until nothing is left. Its
// callers are work that Close waits for, or come before Close.
func (s *Service) remove(sb *sandbox) {
	s.work.Go(func() {
		release, err := sb.acquire(s.ctx)
		if err != nil {
			return
		}
		defer release()
		for failures := 1; ; failures++ {
			err := s.undo(s.ctx, sb)
			if err == nil {
				s.logger(sb).Info("removed the sandbox")
				s.drop(sb)
				s.observe(sb, Change{Kind: ChangeGone})
				return
			}
			sb.update(func(rec *Record) { rec.LastError = err.Error() })
			s.observe(sb, Change{Kind: ChangeStuck, Err: err})
			wait := s.backoff(failures)
			if s.ctx.Err() != nil {
				return
			}
			s.logger(sb).Warn("the sandbox is not removed yet", "tries", failures, "again-in", wait, "error", err)
			if poll.Sleep(s.ctx, wait) != nil {
				return
			}
		}
	})
}

// undo undoes every step that was begun, in reverse order.
func (s *Service) undo(ctx context.Context, sb *sandbox) error {
	rec := sb.snapshot()
	var problems []error
	for _, st := range slices.Backward(steps()) {
		if st.undo == nil || !rec.begun(st.name) {
			continue
		}
		if st.forgets && len(problems) > 0 {
			break
		}
		s.opts.Hook(Point{BeforeUndo, st.name})
		if err := st.undo(s, ctx, sb); err != nil {
			problems = append(problems, err)
		}
		s.opts.Hook(Point{AfterUndo, st.name})
	}
	return errors.Join(problems...)
}
