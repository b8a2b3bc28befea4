// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"context"
	"errors"
	"flag"
	"testing"
	"testing/synctest"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/kit/intercept"
)

// plain is a provider and its manager without contexts; calls are those it has had.
type plain struct {
	provider.Provider
	calls int
}

func (*plain) ParseCmd(*flag.FlagSet) {}
func (*plain) LoadEnv()               {}
func (p *plain) NewProvider() (provider.Provider, error) {
	p.calls++
	return p, nil
}
func (p *plain) ConfigVerifier() error { p.calls++; return nil }
func (p *plain) Teardown() error       { p.calls++; return nil }

// patient has them, and waits for their end.
type patient struct{ plain }

func (p *patient) NewProviderContext(ctx context.Context) (provider.Provider, error) {
	return nil, p.VerifyConfig(ctx)
}
func (p *patient) VerifyConfig(ctx context.Context) error {
	p.calls++
	<-ctx.Done()
	return ctx.Err()
}
func (p *patient) TeardownContext(ctx context.Context) error { return p.VerifyConfig(ctx) }

func TestCallsWithoutContextAreMadeToo(t *testing.T) {
	p := &plain{}
	_, opened := provider.Open(t.Context(), p)
	if err := errors.Join(opened, provider.VerifyConfig(t.Context(), p), provider.Teardown(t.Context(), p)); err != nil || p.calls != 3 {
		t.Errorf("%d calls, error %v", p.calls, err)
	}
}

// TestContextsEndCalls also calls through a decorator, which has the methods anyway.
func TestContextsEndCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &patient{}
		decorated := intercept.Provider(p, func(_ context.Context, _ intercept.Call, next func() error) error { return next() })
		ctx, cancel := context.WithTimeout(t.Context(), provider.TeardownTimeout/2)
		defer cancel()
		_, opened := provider.Open(ctx, p)
		verified := provider.VerifyConfig(t.Context(), intercept.Provider(&plain{}, nil)) // it has no context
		closed := provider.Teardown(ctx, decorated)
		if !errors.Is(opened, context.DeadlineExceeded) || verified != nil || !errors.Is(closed, context.DeadlineExceeded) || p.calls != 2 {
			t.Errorf("%d calls, errors %v, %v, %v", p.calls, opened, verified, closed)
		}
	})
}

func TestEndedContextBeginsNothingButTeardown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &patient{}
	_, opened := provider.Open(ctx, p)
	if verified := provider.VerifyConfig(ctx, p); !errors.Is(opened, provider.ErrUnavailable) || !errors.Is(verified, context.Canceled) || p.calls != 0 {
		t.Errorf("%d calls, errors %v, %v", p.calls, opened, verified)
	}
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(provider.Teardown(ctx, cloud), cloud.ConfigVerifier()); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("it was not released: %v", err)
	}
}
