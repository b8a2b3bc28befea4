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
			r.Fatalf("GetInstance answered neither an instance nor an error")
		}
		r.checkContent(c, made, got)
		r.checkSame(made, got)
		return nil
	})
}

func checkGetAbsent(r *run) {
	got, err := r.get(absentID)
	if err == nil {
		r.Fatalf("GetInstance(%q) answered %+v", absentID, got)
	}
	r.checkClass(err, provider.ErrNotFound)
}

func checkGetDeleted(r *run) {
	instance := r.mustCreate(newKey())
	r.mustDelete(instance.ID)
	r.eventually(func() error {
		got, err := r.get(instance.ID)
		switch {
		case errors.Is(err, provider.ErrNotFound):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("GetInstance(%q) still answers %+v", instance.ID, got)
	})
}

func checkGetGarbage(r *run) {
	for _, id := range append([]string{""}, garbage...) {
		got, err := r.get(id)
		if err == nil {
			r.Errorf("GetInstance(%.50q) answered %+v", id, got)
			continue
		}
		r.checkClass(err, provider.ErrNotFound, provider.ErrInvalidArgument)
	}
}
