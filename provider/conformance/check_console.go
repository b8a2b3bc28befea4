// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/outrigger/outrigger/provider"
)

func (r *run) console(id string, tailBytes int64) ([]byte, error) {
	r.Helper()
	return call(r, "Console", func(ctx context.Context) ([]byte, error) {
		return power[provider.ConsoleReader](r).Console(ctx, id, tailBytes)
	})
}

// checkConsole reads the console while the guest may still write to it, so it
// compares only lengths, and the text where it has stopped growing.
func checkConsole(r *run) {
	instance := r.mustCreate(newKey())
	const all, tail = 1 << 20, 10
	var whole []byte
	r.eventually(func() (err error) {
		if whole, err = r.console(instance.ID, all); err == nil && len(whole) <= tail {
			err = fmt.Errorf("the console has only %d bytes", len(whole))
		}
		return err
	})
	for _, limit := range []int64{0, 1, tail} {
		end, err := r.console(instance.ID, limit)
		if err != nil || int64(len(end)) != limit {
			r.Errorf("Console returned %d bytes of at least %d, asked for the last %d, error %v", len(end), len(whole), limit, err)
		}
	}
	r.eventually(func() error { return r.compareTail(instance.ID, all, tail) })
}

func (r *run) compareTail(id string, all, tail int64) error {
	r.Helper()
	before, err := r.console(id, all)
	if err != nil {
		return err
	}
	end, err := r.console(id, tail)
	if err != nil {
		return err
	}
	if !bytes.HasSuffix(before, end) {
		return fmt.Errorf("the last %d bytes are %q, but the console ends with %q", tail, end, before[max(0, int64(len(before))-tail):])
	}
	return nil
}

func checkConsoleAbsent(r *run) {
	_, err := r.console(absentID, 1)
	r.checkClass(fmt.Sprintf("Console(%q)", absentID), err, provider.ErrNotFound)
}

// checkConsoleHuge does not wait for the guest: the console may be empty.
func checkConsoleHuge(r *run) {
	instance := r.mustCreate(newKey())
	before, err := r.console(instance.ID, 1<<20)
	if err != nil {
		r.Fatalf("Console(%q): %v", instance.ID, err)
	}
	all, err := r.console(instance.ID, math.MaxInt64)
	if err != nil || len(all) < len(before) {
		r.Errorf("Console returned %d bytes, asked for all of at least %d, error %v", len(all), len(before), err)
	}
}

func checkConsoleNegative(r *run) {
	instance := r.mustCreate(newKey())
	_, err := r.console(instance.ID, -1)
	r.checkClass("Console of -1 bytes", err, provider.ErrInvalidArgument)
}

func checkConsoleDeleted(r *run) {
	instance := r.mustCreate(newKey())
	r.mustDelete(instance.ID)
	r.checkUnknown("Console", func() error {
		_, err := r.console(instance.ID, 1)
		return err
	})
}
