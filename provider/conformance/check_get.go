// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"

	"github.com/outrigger/outrigger/provider"
)

func checkGet(r *run) {
	c := r.creation(newKey())
	made := r.mustDo(c)
	r.eventually(func() error {
		got, err := r.get(made.ID)
		if err != nil {
			return err
		}
		if got == nil {
			r.Fatalf("GetInstance returned neither an instance nor an error")
		}
		r.checkContent(c, made, got)
		r.checkSame(made, got)
		return nil
	})
}

// checkFound waits until a look-up finds the instance, where there are look-ups.
func (r *run) checkFound(id string) {
	r.Helper()
	if has[provider.Getter](r) {
		r.eventually(func() error {
			_, err := r.get(id)
			return err
		})
	}
}

func checkGetAbsent(r *run) {
	_, err := r.get(absentID)
	r.checkClass(fmt.Sprintf("GetInstance(%q)", absentID), err, provider.ErrNotFound)
}

func checkGetDeleted(r *run) {
	instance := r.mustCreate(newKey())
	r.mustDelete(instance.ID)
	r.checkUnknown("GetInstance", func() error {
		_, err := r.get(instance.ID)
		return err
	})
}

// checkUnknown waits until a call about a deleted instance does not find it.
func (r *run) checkUnknown(what string, call func() error) {
	r.Helper()
	r.eventually(func() error {
		err := call()
		switch {
		case errors.Is(err, provider.ErrNotFound):
			return nil
		case err == nil:
			return fmt.Errorf("%s of a deleted instance still answers", what)
		}
		return err
	})
}

func checkGetGarbage(r *run) {
	for _, id := range append([]string{""}, garbage...) {
		_, err := r.get(id)
		r.checkClass(fmt.Sprintf("GetInstance(%.50q)", id), err, provider.ErrNotFound, provider.ErrInvalidArgument)
	}
}
