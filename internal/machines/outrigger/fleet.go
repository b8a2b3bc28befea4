// SPDX-License-Identifier: Apache-2.0

package outrigger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// fleet is the provider in all its failure domains. Its calls are bounded in
// time and observed.
type fleet struct {
	options *Options
	// all has the provider without a domain first. They may show the same
	// instances.
	all []provider.Provider
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// values returns the values in the order of their keys.
func values[V any](m map[string]V) []V {
	var all []V
	for _, key := range keys(m) {
		all = append(all, m[key])
	}
	return all
}

// in returns the provider that makes instances in a failure domain; the empty
// one is any.
func (f fleet) in(domain string) (provider.Provider, error) {
	if domain == "" {
		return f.options.Provider, nil
	}
	if p := f.options.Domains[domain]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%w: provider %s is not configured for failure domain %q; configured are %q: start the manager with --failure-domain %s=FILE",
		provider.ErrInvalidArgument, f.options.Name, domain, keys(f.options.Domains), f.options.DomainPrefix+domain)
}

func (f fleet) call(ctx context.Context, operation string, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	err := do(ctx)
	f.options.Observe(Call{Provider: f.options.Name, Operation: operation, Took: time.Since(began), Err: err})
	if err != nil {
		return fmt.Errorf("%s instance at provider %s: %w", operation, f.options.Name, err)
	}
	return nil
}

func (f fleet) create(ctx context.Context, p provider.Provider, name, key string, data []byte, spec provider.InstanceTypeSpec) (instance *provider.Instance, err error) {
	err = f.call(ctx, "create", f.options.CreateTimeout, func(ctx context.Context) (err error) {
		instance, err = p.CreateInstance(ctx, name, key, cloudinit.Raw(data), spec)
		return err
	})
	return instance, err
}

// remove deletes at every provider. Providers that cannot have assigned the id
// are skipped; at least one must have.
func (f fleet) remove(ctx context.Context, id string) error {
	var foreign, others []error
	for _, p := range f.all {
		err := f.call(ctx, "delete", f.options.CallTimeout, func(ctx context.Context) error { return p.DeleteInstance(ctx, id) })
		switch {
		case errors.Is(err, provider.ErrInvalidArgument):
			foreign = append(foreign, err)
		case err != nil:
			others = append(others, err)
		}
	}
	if len(foreign) == len(f.all) {
		return errors.Join(foreign...)
	}
	return errors.Join(others...)
}

// list returns the instances that carry the tags, each once.
func (f fleet) list(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	byID := map[string]provider.Instance{}
	for _, p := range f.all {
		lister, _ := provider.As[provider.Lister](p)
		err := f.call(ctx, "list", f.options.CallTimeout, func(ctx context.Context) error {
			some, err := lister.ListInstances(ctx, match)
			for _, i := range some {
				// Instances without the tags must not be deleted.
				if provider.HasTags(i.Tags, match) {
					byID[i.ID] = i
				}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return values(byID), nil
}

// get returns ErrNotFound when no provider knows the id.
func (f fleet) get(ctx context.Context, id string) (instance *provider.Instance, err error) {
	for _, p := range f.all {
		getter, _ := provider.As[provider.Getter](p)
		err = f.call(ctx, "get", f.options.CallTimeout, func(ctx context.Context) (err error) {
			instance, err = getter.GetInstance(ctx, id)
			if errors.Is(err, provider.ErrInvalidArgument) {
				err = fmt.Errorf("%w: %v", provider.ErrNotFound, err)
			}
			return err
		})
		if err == nil {
			return instance, nil
		}
		if !errors.Is(err, provider.ErrNotFound) {
			return nil, err
		}
	}
	return nil, err
}
