// SPDX-License-Identifier: Apache-2.0

package fake_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

func TestBootGivesAddresses(t *testing.T) {
	var got fake.BootRequest
	addr := netip.MustParseAddr("127.0.0.2")
	cloud := newCloud(t, fake.Options{Boot: func(_ context.Context, request fake.BootRequest) ([]netip.Addr, error) {
		got = request
		return []netip.Addr{addr}, nil
	}})
	instance := mustCreate(t, cloud, "k")
	if instance.IPs[0] != addr || instance.State != provider.StateRunning {
		t.Errorf("instance %+v", instance)
	}
	if got.Instance.ID != instance.ID || got.Instance.Key != "k" || got.UserData != string(userData) {
		t.Errorf("request %+v", got)
	}
}

func TestBootFails(t *testing.T) {
	cause, halted := errors.New("no kernel"), 0
	cloud := newCloud(t, fake.Options{
		Boot: func(context.Context, fake.BootRequest) ([]netip.Addr, error) { return nil, cause },
		Halt: func(context.Context, provider.Instance) error { halted++; return nil },
	})
	if instance, err := create(t.Context(), cloud, "k"); !errors.Is(err, cause) || instance != nil {
		t.Errorf("got %v, %v", instance, err)
	}
	if halted != 1 {
		t.Errorf("Halt was called %d times", halted)
	}
	checkLeaks(t, cloud)
}

// TestUndoFails: what cannot be removed comes back with the error.
func TestUndoFails(t *testing.T) {
	boot, halt := errors.New("no kernel"), errors.New("no such process")
	cloud := newCloud(t, fake.Options{
		Boot: func(context.Context, fake.BootRequest) ([]netip.Addr, error) { return nil, boot },
		Halt: func(context.Context, provider.Instance) error { return halt },
	})
	instance, err := create(t.Context(), cloud, "k")
	if !errors.Is(err, boot) || !errors.Is(err, halt) || instance == nil || instance.ID == "" {
		t.Fatalf("got %v, %v, want the id to delete", instance, err)
	}
	if err := cloud.DeleteInstance(t.Context(), instance.ID); !errors.Is(err, halt) {
		t.Errorf("error %v", err)
	}
	checkLeaks(t, cloud, whole...)
}

// TestDeleteWhileBooting: whoever comes last ends the guest, and nothing stays.
func TestDeleteWhileBooting(t *testing.T) {
	booting := make(chan string, 1)
	cloud := newCloud(t, fake.Options{Boot: func(ctx context.Context, request fake.BootRequest) ([]netip.Addr, error) {
		booting <- request.Instance.ID
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	created := make(chan error, 1)
	go func() {
		_, err := create(context.WithoutCancel(t.Context()), cloud, "k")
		created <- err
	}()
	if err := cloud.DeleteInstance(t.Context(), <-booting); err != nil {
		t.Fatal(err)
	}
	if err := <-created; !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("creating answered %v", err)
	}
	checkLeaks(t, cloud)
}

// TestDeletedElsewhereWhileBooting: another process deletes, so nobody cancels
// the boot; the creation finds out at its end and halts the guest.
func TestDeletedElsewhereWhileBooting(t *testing.T) {
	booting, proceed := make(chan string, 1), make(chan struct{})
	running := 0
	cloud := newCloud(t, fake.Options{
		Boot: func(_ context.Context, request fake.BootRequest) ([]netip.Addr, error) {
			booting <- request.Instance.ID
			<-proceed
			running++
			return nil, nil
		},
		Halt: func(context.Context, provider.Instance) error { running = 0; return nil },
	})
	created := make(chan error, 1)
	go func() {
		_, err := create(context.WithoutCancel(t.Context()), cloud, "k")
		created <- err
	}()
	if err := cloud.Reopen().DeleteInstance(t.Context(), <-booting); err != nil {
		t.Fatal(err)
	}
	close(proceed)
	if err := <-created; !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("creating answered %v", err)
	}
	if running != 0 {
		t.Error("the guest is still running")
	}
	checkLeaks(t, cloud)
}

// TestSameKeyWaitsForTheFirst: calls with a key that is being made wait, and
// only as long as their context allows.
func TestSameKeyWaitsForTheFirst(t *testing.T) {
	for name, dir := range map[string]func(*testing.T) string{
		"memory": func(*testing.T) string { return "" },
		"folder": func(t *testing.T) string { return t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			booting, proceed := make(chan string, 1), make(chan struct{})
			cloud := newCloud(t, fake.Options{Dir: dir(t), Boot: func(_ context.Context, request fake.BootRequest) ([]netip.Addr, error) {
				booting <- request.Instance.ID
				<-proceed
				return nil, nil
			}})
			ids := make(chan string, 2)
			start := func(c *fake.Cloud) {
				instance, err := create(context.WithoutCancel(t.Context()), c, "k")
				if err != nil {
					t.Errorf("creating answered %v", err)
				}
				ids <- instance.ID
			}
			go start(cloud)
			<-booting
			go start(cloud.Reopen())
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := create(ctx, cloud, "k"); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			close(proceed)
			if first, second := <-ids, <-ids; first != second {
				t.Errorf("two instances: %s and %s", first, second)
			}
		})
	}
}
