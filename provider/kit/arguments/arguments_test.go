// SPDX-License-Identifier: Apache-2.0

package arguments_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/provider/kit/intercept"
)

// careless is a provider that is never to be called.
func careless(t *testing.T) provider.Provider {
	t.Helper()
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return arguments.Checked(intercept.Provider(cloud, func(_ context.Context, call intercept.Call, _ func() error) error {
		t.Errorf("%s reached the provider", call.Method)
		return nil
	}))
}

func TestBadArgumentsDoNotReachTheProvider(t *testing.T) {
	ctx := t.Context()
	create := func(key string, spec provider.InstanceTypeSpec) func(provider.Provider) error {
		return func(p provider.Provider) error {
			_, err := p.CreateInstance(ctx, "pod", key, nil, spec)
			return err
		}
	}
	for name, tc := range map[string]struct {
		call func(provider.Provider) error
		want string
	}{
		"no key":       {create("", provider.InstanceTypeSpec{}), "the sandbox id is empty"},
		"a long key":   {create(strings.Repeat("k", 65), provider.InstanceTypeSpec{}), "is not 1 to 64"},
		"a blank key":  {create("a b", provider.InstanceTypeSpec{}), `"a b" is not 1 to 64`},
		"a line's end": {create("a\n", provider.InstanceTypeSpec{}), `"a\n" is not 1 to 64`},
		"fewer CPUs":   {create("k", provider.InstanceTypeSpec{VCPUs: -1}), "-1 CPUs"},
		"fewer memory": {create("k", provider.InstanceTypeSpec{Memory: -2}), "-2 MiB"},
		"fewer GPUs":   {create("k", provider.InstanceTypeSpec{GPUs: -3}), "-3 GPUs"},
		"no id":        {func(p provider.Provider) error { return p.DeleteInstance(ctx, "") }, "the instance id is empty"},
		"no tags": {func(p provider.Provider) error {
			_, err := capability[provider.Lister](t, p).ListInstances(ctx, nil)
			return err
		}, "no tags"},
		"no tags either": {func(p provider.Provider) error {
			_, err := capability[provider.LoadBalancerController](t, p).ListLoadBalancers(ctx, nil)
			return err
		}, "no tags"},
		"negative bytes": {func(p provider.Provider) error {
			_, err := capability[provider.ConsoleReader](t, p).Console(ctx, "i", -1)
			return err
		}, "-1 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.call(careless(t))
			if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v; want an invalid argument with %q", err, tc.want)
			}
		})
	}
}

func capability[C any](t *testing.T, p provider.Provider) C {
	t.Helper()
	c, ok := provider.As[C](p)
	if !ok {
		t.Fatal("the capability is not there")
	}
	return c
}

func TestGoodArgumentsPass(t *testing.T) {
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := arguments.Checked(cloud)
	for _, key := range []string{"k", strings.Repeat("k", 64), "A-z_0.9"} {
		if _, err := p.CreateInstance(t.Context(), "", key, nil, provider.InstanceTypeSpec{}); err != nil {
			t.Errorf("key %s: %v", key, err)
		}
	}
	if err := p.DeleteInstance(t.Context(), "gone"); err != nil {
		t.Error(err)
	}
}
