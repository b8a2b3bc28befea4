// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

func TestCapabilities(t *testing.T) {
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	remote := start(t, wire.Options{Name: "fake", Cloud: fake.NewManager(), Configured: cloud}).provider(t, "", nil)
	if diff := cmp.Diff(provider.Capabilities(cloud), provider.Capabilities(remote)); diff != "" {
		t.Error(diff)
	}
	if _, ok := provider.As[provider.NodeAddresser](remote); ok {
		t.Error("a power that is not there")
	}
	if _, err := remote.(provider.NodeAddresser).NodeAddress(t.Context()); !errors.Is(err, provider.ErrUnimplemented) || !strings.Contains(err.Error(), "fake is not a provider.NodeAddresser") {
		t.Errorf("called all the same: %v", err)
	}
	bare := start(t, wire.Options{Name: "stub", Cloud: stubCloud(nil), Configured: &stub{}}).provider(t, "", nil)
	if capabilities := provider.Capabilities(bare); capabilities != nil {
		t.Errorf("capabilities from nowhere: %v", capabilities)
	}
}

func TestPartialInstanceCrosses(t *testing.T) {
	made := &provider.Instance{ID: "i-1", Name: "podvm", Tags: map[string]string{"a": "b"}}
	p := start(t, wire.Options{Name: "stub", Cloud: stubCloud(nil), Configured: &stub{
		create: func(_ context.Context, userData string, _ provider.InstanceTypeSpec) (*provider.Instance, error) {
			if userData != "\xff\x00user-data" {
				t.Errorf("user-data %q", userData)
			}
			return made, fmt.Errorf("attach: %w", provider.ErrCapacity)
		},
	}}).provider(t, "", nil)
	got, err := p.CreateInstance(t.Context(), "pod", "key", cloudinit.Raw("\xff\x00user-data"), provider.InstanceTypeSpec{})
	if !errors.Is(err, provider.ErrCapacity) || err.Error() != "attach: no capacity" {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(made, got); diff != "" {
		t.Error(diff)
	}
	made = nil
	if got, err := p.CreateInstance(t.Context(), "pod", "key", cloudinit.Raw("\xff\x00user-data"), provider.InstanceTypeSpec{}); got != nil || err == nil {
		t.Errorf("nothing made: %v, %v", got, err)
	}
	if _, err := p.CreateInstance(t.Context(), "\xff", "key", cloudinit.Raw(""), provider.InstanceTypeSpec{}); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "not UTF-8") {
		t.Errorf("a name that cannot travel: %v", err)
	}
}

// failingGenerator fails, and counts how often it is asked.
type failingGenerator struct{ calls int }

func (g *failingGenerator) Generate() (string, error) {
	g.calls++
	return "", errors.New("no key")
}

func TestUserDataIsGeneratedByTheCaller(t *testing.T) {
	p := start(t, wire.Options{Name: "stub", Cloud: stubCloud(nil), Configured: &stub{}}).provider(t, "", nil)
	g := &failingGenerator{}
	if _, err := p.CreateInstance(t.Context(), "pod", "key", g, provider.InstanceTypeSpec{}); err == nil || err.Error() != "invalid argument: generate user-data: no key" || g.calls != 1 {
		t.Errorf("%v after %d calls", err, g.calls)
	}
}

func TestPanics(t *testing.T) {
	var stderr bytes.Buffer
	log := slog.New(slog.NewTextHandler(&stderr, nil))
	crash := func() error { panic("at the disco") }
	s := start(t, wire.Options{Name: "stub", Log: log, Cloud: stubCloud(func(c stubConfig) (provider.Provider, error) {
		if c.Zone == "b" {
			panic("in zone b")
		}
		return &stub{
			create: func(context.Context, string, provider.InstanceTypeSpec) (*provider.Instance, error) {
				return nil, crash()
			},
			delete: func(context.Context, string) error { return crash() }, verify: crash, teardown: crash,
		}, nil
	})})
	p := s.provider(t, "", values("a"))
	_, created := p.CreateInstance(t.Context(), "p", "k", cloudinit.Raw(""), provider.InstanceTypeSpec{})
	_, configured := wire.Configure(t.Context(), s.dial(t), "", values("b"))
	for method, err := range map[string]error{
		"CreateInstance": created, "DeleteInstance": p.DeleteInstance(t.Context(), "i"), "ConfigVerifier": p.ConfigVerifier(),
	} {
		if !errors.Is(err, provider.ErrUnknown) || !strings.HasSuffix(err.Error(), "the provider panicked in "+method+": at the disco") {
			t.Errorf("%s: %v", method, err)
		}
	}
	if configured == nil || !strings.HasSuffix(configured.Error(), "in NewProvider: in zone b") {
		t.Errorf("NewProvider: %v", configured)
	}
	if err := p.Teardown(); err == nil || !strings.HasSuffix(err.Error(), "in Teardown: at the disco") {
		t.Errorf("Teardown: %v", err)
	}
	if logged := stderr.String(); !strings.Contains(logged, "server_test.go") || strings.Contains(logged, token) {
		t.Errorf("log without the stack, or with a secret: %s", logged)
	}
}

// TestVerifyIsBounded: a client waits no longer than its context for a verifier that has
// none, and the provider is torn down after it.
func TestVerifyIsBounded(t *testing.T) {
	var log events
	gate := make(chan struct{})
	s := start(t, wire.Options{Name: "stub", Cloud: stubCloud(func(stubConfig) (provider.Provider, error) {
		return &stub{
			verify:   func() error { <-gate; log.add("verified"); return nil },
			teardown: func() error { log.add("closed"); return nil },
		}, nil
	})})
	p := s.provider(t, "", values("a"))
	for _, call := range []func(context.Context, provider.Provider) error{provider.VerifyConfig, provider.Teardown} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := call(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a provider that hangs: %v", err)
		}
		cancel()
	}
	close(gate)
	eventually(t, "both have ended", func() bool { return len(log.all()) == 2 })
	if diff := cmp.Diff([]string{"verified", "closed"}, log.all()); diff != "" {
		t.Error(diff)
	}
}

// TestContextsCross: the context of a call is the provider's.
func TestContextsCross(t *testing.T) {
	started, ended := make(chan struct{}, 1), make(chan error, 1)
	wait := func(ctx context.Context) error {
		started <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
	s := start(t, wire.Options{Name: "stub", Cloud: config.NewContext("stub", func(ctx context.Context, c stubConfig) (provider.Provider, error) {
		switch c.Zone {
		case "a":
			return &verifyingStub{wait: wait}, nil
		case "b":
			return &closingStub{wait: wait}, nil
		}
		return nil, wait(ctx)
	})})
	verifying, closing := s.provider(t, "one", values("a")), s.provider(t, "two", values("b"))
	conn := s.dial(t)
	for call, f := range map[string]func(context.Context) error{
		"Configure": func(ctx context.Context) error { _, err := wire.Configure(ctx, conn, "three", values("c")); return err },
		"Verify":    func(ctx context.Context) error { return provider.VerifyConfig(ctx, verifying) },
		"Teardown":  func(ctx context.Context) error { return provider.Teardown(ctx, closing) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- f(ctx) }()
		within(t, call+" arrives", started)
		cancel()
		within(t, call+" ends there", ended)
		if err := within(t, call+" ends here", result); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// verifyingStub and closingStub wait in a call that has a context by choice.
type verifyingStub struct {
	stub
	wait func(context.Context) error
}

func (s *verifyingStub) VerifyConfig(ctx context.Context) error { return s.wait(ctx) }

type closingStub struct {
	stub
	wait func(context.Context) error
}

func (s *closingStub) TeardownContext(ctx context.Context) error { return s.wait(ctx) }

// TestListWaitsForGivenUpCreations: what a cancelled creation makes in the end
// is in the list that follows, as it is without a wire in between.
func TestListWaitsForGivenUpCreations(t *testing.T) {
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stubborn := &stubbornCloud{Cloud: cloud, started: make(chan struct{}), finish: make(chan struct{})}
	p := start(t, wire.Options{Name: "fake", Cloud: fake.NewManager(), Configured: stubborn}).provider(t, "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	created := make(chan error, 1)
	tags := map[string]string{provider.TagKey: "key"}
	go func() {
		_, err := p.CreateInstance(ctx, "pod", "key", cloudinit.Raw(""), provider.InstanceTypeSpec{Tags: tags})
		created <- err
	}()
	within(t, "the creation arrives", stubborn.started)
	cancel()
	if err := within(t, "the creation is given up", created); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	listed := make(chan int, 1)
	go func() {
		list, err := p.(provider.Lister).ListInstances(t.Context(), tags)
		if err != nil {
			t.Error(err)
		}
		listed <- len(list)
	}()
	select {
	case n := <-listed:
		t.Errorf("a list of %d while the creation goes on", n)
	case <-time.After(50 * time.Millisecond):
	}
	close(stubborn.finish)
	if n := within(t, "the list", listed); n != 1 {
		t.Errorf("%d instances in the list", n)
	}
}

// stubbornCloud finishes a creation although its caller has given up.
type stubbornCloud struct {
	*fake.Cloud
	started, finish chan struct{}
}

func (s *stubbornCloud) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	close(s.started)
	<-s.finish
	return s.Cloud.CreateInstance(context.WithoutCancel(ctx), podName, sandboxID, cloudConfig, spec)
}
