// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

const token = "t0p-s3cret"

func values(zone string) config.Values { return config.Values{"stub-zone": zone, "STUB_TOKEN": token} }

func TestInfo(t *testing.T) {
	cloud := stubCloud(nil)
	got, err := wire.Info(t.Context(), start(t, wire.Options{Name: "stub", Version: "v1.2.3", Cloud: cloud}).dial(t))
	if err != nil {
		t.Fatal(err)
	}
	want := wire.About{Name: "stub", Version: "v1.2.3", Schema: cloud.Schema()}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	configured := start(t, wire.Options{Name: "stub", Cloud: cloud, Configured: &stub{}}).dial(t)
	if got, err := wire.Info(t.Context(), configured); err != nil || !got.Configured {
		t.Errorf("configured: %v, %v", got, err)
	}
}

func TestConfigure(t *testing.T) {
	var log events
	s := start(t, wire.Options{Name: "stub", Cloud: stubCloud(func(c stubConfig) (provider.Provider, error) {
		if c.Token.Reveal() != token {
			t.Errorf("token %q", c.Token.Reveal())
		}
		log.add("open " + c.Zone)
		return &stub{
			delete:   func(context.Context, string) error { log.add("delete in " + c.Zone); return nil },
			teardown: func() error { log.add("close " + c.Zone); return nil },
		}, nil
	})})
	mustDelete := func(p provider.Provider) {
		t.Helper()
		if err := p.DeleteInstance(t.Context(), "i-1"); err != nil {
			t.Error(err)
		}
	}
	one := s.provider(t, "one", values("a"))
	two := s.provider(t, "two", values("b"))
	mustDelete(s.provider(t, "one", values("a"))) // the same values: the same provider
	mustDelete(two)
	s.provider(t, "one", values("c"))
	mustDelete(one) // a client goes on with what replaced it
	eventually(t, "the old provider is closed", func() bool { return slices.Contains(log.all(), "close a") })
	for range 2 {
		if err := one.Teardown(); err != nil {
			t.Error(err)
		}
	}
	if err := one.DeleteInstance(t.Context(), "i-1"); !errors.Is(err, wire.ErrNotConfigured) || provider.Class(err) != provider.ErrUnavailable ||
		!strings.Contains(err.Error(), `no configuration "one"`) {
		t.Errorf("after Teardown: %v", err)
	}
	mustDelete(two)
	if err := s.server.Close(); err != nil {
		t.Error(err)
	}
	if err := two.DeleteInstance(t.Context(), "i-1"); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
	got := slices.DeleteFunc(log.all(), func(e string) bool { return e == "close a" }) // at its own time
	want := []string{"open a", "open b", "delete in a", "delete in b", "open c", "delete in c", "close c", "delete in b", "close b"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWrongValuesLeaveTheProvider(t *testing.T) {
	s := start(t, wire.Options{Name: "stub", Cloud: stubCloud(func(c stubConfig) (provider.Provider, error) {
		if c.Zone == "c" {
			return nil, fmt.Errorf("%w: zone c", provider.ErrUnauthenticated)
		}
		return &stub{}, nil
	})})
	p := s.provider(t, "", values("a"))
	for name, test := range map[string]struct {
		values config.Values
		class  error
		text   string
	}{
		"no choice":    {config.Values{"stub-zone": "x", "STUB_TOKEN": token}, provider.ErrInvalidArgument, "-stub-zone (STUB_ZONE)"},
		"missing":      {nil, provider.ErrInvalidArgument, "STUB_TOKEN: it is required"},
		"unknown name": {config.Values{"stub-zones": "a", "STUB_TOKEN": token}, provider.ErrInvalidArgument, `no setting "stub-zones"`},
		"refused":      {values("c"), provider.ErrUnauthenticated, "zone c"},
	} {
		_, err := wire.Configure(t.Context(), s.dial(t), "", test.values)
		if !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.text) || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.DeleteInstance(t.Context(), "i-1"); err != nil {
		t.Errorf("the provider before is lost: %v", err)
	}
}

// TestReplacedProviderEndsItsCalls: what replaces a provider does not end the
// calls to it, and it is torn down after them.
func TestReplacedProviderEndsItsCalls(t *testing.T) {
	var log events
	started, finish := make(chan struct{}, 1), make(chan struct{})
	s := start(t, wire.Options{Name: "stub", Cloud: stubCloud(func(c stubConfig) (provider.Provider, error) {
		return &stub{
			delete: func(context.Context, string) error {
				started <- struct{}{}
				<-finish
				log.add("deleted in " + c.Zone)
				return nil
			},
			teardown: func() error { log.add("close " + c.Zone); return nil },
		}, nil
	})})
	p := s.provider(t, "", values("a"))
	result := make(chan error, 1)
	go func() { result <- p.DeleteInstance(t.Context(), "i-1") }()
	within(t, "the call arrives", started)
	s.provider(t, "", values("b"))
	if len(log.all()) > 0 {
		t.Errorf("too early: %v", log.all())
	}
	close(finish)
	if err := within(t, "the call ends", result); err != nil {
		t.Error(err)
	}
	eventually(t, "the old provider is closed", func() bool { return len(log.all()) == 2 })
	if diff := cmp.Diff([]string{"deleted in a", "close a"}, log.all()); diff != "" {
		t.Error(diff)
	}
}

func TestConfigureIsBounded(t *testing.T) {
	gate := make(chan struct{})
	var opened, closed atomic.Int32
	s := start(t, wire.Options{Name: "stub", Cloud: stubCloud(func(stubConfig) (provider.Provider, error) {
		<-gate
		opened.Add(1)
		return &stub{teardown: func() error { closed.Add(1); return nil }}, nil
	})})
	conn := s.dial(t)
	for range 2 { // the second waits for the first
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := wire.Configure(ctx, conn, "", values("a"))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("NewProvider hangs: %v", err)
		}
		cancel()
	}
	close(gate)
	s.provider(t, "", values("a"))
	eventually(t, "the late provider is closed", func() bool { return closed.Load() == opened.Load()-1 })
}

func TestConcurrentConfigure(t *testing.T) {
	var opened atomic.Int32
	s := start(t, wire.Options{Name: "stub", Cloud: stubCloud(func(stubConfig) (provider.Provider, error) {
		opened.Add(1)
		return &stub{}, nil
	})})
	conn := s.dial(t)
	results := make(chan error, 8)
	for range cap(results) {
		go func() {
			_, err := wire.Configure(t.Context(), conn, "", values("a"))
			results <- err
		}()
	}
	for range cap(results) {
		if err := within(t, "Configure", results); err != nil {
			t.Error(err)
		}
	}
	if opened.Load() != 1 {
		t.Errorf("%d providers for one configuration", opened.Load())
	}
}

func TestLegacyManager(t *testing.T) {
	var got legacy
	manager := &legacy{}
	manager.open = func(l *legacy) (provider.Provider, error) { got = *l; return &stub{}, nil }
	s := start(t, wire.Options{Name: "legacy", Cloud: manager})
	conn := s.dial(t)
	about, err := wire.Info(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Schema{Provider: "legacy", Fields: []config.Field{
		{Name: "legacy-public", Flag: "legacy-public", Type: config.Bool, Default: "false", Usage: "public address"},
		{Name: "legacy-retries", Flag: "legacy-retries", Type: config.Int, Default: "3", Usage: "how often"},
		{Name: "legacy-token", Flag: "legacy-token", Type: config.String, Secret: true, Usage: "API token"},
		{Name: "legacy-wait", Flag: "legacy-wait", Type: config.Duration, Default: "1m0s", Usage: "how long"},
		{Name: "legacy-zone", Flag: "legacy-zone", Type: config.String, Default: "a", Usage: "zone such as name"},
	}}
	if diff := cmp.Diff(want, about.Schema); diff != "" {
		t.Error(diff)
	}
	if _, err := wire.Configure(t.Context(), conn, "one", config.Values{"legacy-zone": "b", "legacy-retries": "5", "legacy-public": "true"}); err != nil {
		t.Fatal(err)
	}
	if got.zone != "b" || got.retries != 5 || !got.public || got.wait != time.Minute {
		t.Errorf("configured as %+v", got)
	}
	if _, err := wire.Configure(t.Context(), conn, "two", nil); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), `only one configuration in a process, here "one", so not "two"`) {
		t.Errorf("a second configuration: %v", err)
	}
	for name, values := range map[string]config.Values{
		"-legacy-retries":          {"legacy-retries": "x"},
		`no setting "legacy-zoom"`: {"legacy-zoom": "x"},
		"no such zone":             {"legacy-zone": "none"},
	} {
		if _, err := wire.Configure(t.Context(), conn, "one", values); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v", values, err)
		}
	}
	if err := wire.NewProvider(conn, "one", nil).Teardown(); err != nil {
		t.Error(err)
	}
	if _, err := wire.Configure(t.Context(), conn, "two", nil); err != nil {
		t.Errorf("after the first is released: %v", err)
	}
	if got.zone != "a" || got.retries != 3 {
		t.Errorf("values of the first remain: %+v", got)
	}
}

// TestConfiguredByItsOwner: clients share the provider and cannot close it.
func TestConfiguredByItsOwner(t *testing.T) {
	var log events
	s := start(t, wire.Options{Name: "stub", Cloud: stubCloud(nil), Configured: &stub{teardown: func() error { log.add("closed"); return nil }}})
	first, second := s.provider(t, "first", nil), s.provider(t, "second", nil)
	if _, err := wire.Configure(t.Context(), s.dial(t), "", values("a")); !errors.Is(err, provider.ErrInvalidArgument) ||
		!strings.Contains(err.Error(), `set ["STUB_TOKEN" "stub-zone"] there`) {
		t.Errorf("with values: %v", err)
	}
	if err := first.Teardown(); err != nil {
		t.Error(err)
	}
	if err := second.DeleteInstance(t.Context(), "i-1"); err != nil {
		t.Error(err)
	}
	if len(log.all()) > 0 {
		t.Error("a client has closed it")
	}
	if err := s.server.Close(); err != nil || len(log.all()) != 1 {
		t.Errorf("Close: %v, %v", err, log.all())
	}
}
