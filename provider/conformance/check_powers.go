// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"

	"github.com/outrigger/outrigger/provider"
)

func (r *run) console(id string, tailBytes int64) ([]byte, error) {
	r.Helper()
	return call(r, "Console", func(ctx context.Context) ([]byte, error) {
		return r.provider.(provider.ConsoleReader).Console(ctx, id, tailBytes)
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
			r.Errorf("Console answered %d bytes of at least %d, asked for the last %d, error %v", len(end), len(whole), limit, err)
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
	text, err := r.console(absentID, 1)
	if err == nil {
		r.Fatalf("Console(%q) answered %q", absentID, text)
	}
	r.checkClass(err, provider.ErrNotFound)
}

func checkPower(r *run) {
	instance := r.mustCreate(newKey())
	power := r.provider.(provider.PowerController)
	for _, step := range []struct {
		name  string
		call  func(context.Context, string) error
		state provider.InstanceState
	}{
		{"PowerOn", power.PowerOn, provider.StateRunning},
		{"PowerOff", power.PowerOff, provider.StateStopped},
		{"PowerOff", power.PowerOff, provider.StateStopped},
		{"PowerOn", power.PowerOn, provider.StateRunning},
		{"PowerOn", power.PowerOn, provider.StateRunning},
	} {
		if _, err := call(r, step.name, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, step.call(ctx, instance.ID)
		}); err != nil {
			r.Fatalf("%s(%q): %v", step.name, instance.ID, err)
		}
		r.checkState(instance.ID, step.state)
	}
}

// checkState waits for a state, where the provider tells states.
func (r *run) checkState(id string, wanted provider.InstanceState) {
	r.Helper()
	if _, ok := r.provider.(provider.Getter); !ok {
		return
	}
	r.eventually(func() error {
		got, err := r.get(id)
		if err == nil && got.State != "" && got.State != wanted {
			err = fmt.Errorf("instance %s is %q, not %q", id, got.State, wanted)
		}
		return err
	})
}

func checkTypes(r *run) {
	types, err := call(r, "InstanceTypes", r.provider.(provider.InstanceTypeLister).InstanceTypes)
	if err != nil || len(types) == 0 {
		r.Fatalf("InstanceTypes answered %d types, error %v", len(types), err)
	}
	seen := map[string]bool{}
	for _, t := range types {
		if t.Name == "" || seen[t.Name] {
			r.Errorf("type %q has no name or one that another has", t.Name)
		}
		seen[t.Name] = true
		if t.VCPUs <= 0 || t.Memory <= 0 || t.GPUs < 0 || t.Price < 0 || t.Arch == "" {
			r.Errorf("type %q has no size or architecture: %+v", t.Name, t)
		}
	}
	if named := r.subject.Spec.InstanceType; named != "" && !seen[named] {
		r.Errorf("the catalogue does not have %q, of which instances are made", named)
	}
}

func checkNodeAddress(r *run) {
	addr, err := call(r, "NodeAddress", func(ctx context.Context) (netip.Addr, error) {
		return r.provider.(provider.NodeAddresser).NodeAddress(ctx)
	})
	if err != nil || !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
		r.Errorf("NodeAddress answered %q, error %v", addr, err)
	}
}

func checkVerify(r *run) {
	_, err := call(r, "ConfigVerifier", func(context.Context) (struct{}, error) {
		return struct{}{}, r.provider.ConfigVerifier()
	})
	if err != nil {
		r.Errorf("ConfigVerifier: %v", err)
	}
	if err := r.poll(r.leaks); err != nil {
		r.Errorf("left behind by ConfigVerifier: %v", err)
	}
}

// checkTeardown proves by key that the instance is still there: the same key
// gives the same instance, and a new one if it is not.
func checkTeardown(r *run) {
	c := r.creation(newKey())
	made := r.mustDo(c)
	next := r.reopen()
	r.teardown(r.provider)
	r.provider, c.provider = next, next
	if _, ok := next.(provider.Getter); ok {
		r.eventually(func() error {
			_, err := r.get(made.ID)
			return err
		})
	}
	r.checkSame(made, r.mustDo(c))
}
