// SPDX-License-Identifier: Apache-2.0

// Package compat is what the sources of providers for cloud-api-adaptor of the project
// Confidential Containers expect of their package provider, over this project's contract.
// Such sources do not import it: the module in examples/upstream-module gives it the
// import path that they have. docs/provider-compat.md says how.
package compat

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// The contract itself is the same.
type (
	Provider         = provider.Provider
	CloudProvider    = provider.CloudProvider
	Instance         = provider.Instance
	InstanceTypeSpec = provider.InstanceTypeSpec
	CloudVolume      = provider.CloudVolume
)

// KeyValueFlag is a flag with pairs KEY=VALUE, by comma.
type KeyValueFlag map[string]string

// String implements [flag.Value].
func (k *KeyValueFlag) String() string {
	if k == nil {
		return ""
	}
	var pairs []string
	for key, value := range *k {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// Set implements [flag.Value]. Pairs of an earlier call stay.
func (k *KeyValueFlag) Set(text string) error {
	if *k == nil {
		*k = KeyValueFlag{}
	}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("%q is not KEY=VALUE", pair)
		}
		(*k)[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return nil
}

// AddCloudProvider makes a provider known by name. Mistakes in what its [FlagRegistrar]
// reads are errors of its NewProvider.
func AddCloudProvider(name string, cloud CloudProvider) {
	provider.AddCloudProvider(name, &checked{CloudProvider: cloud})
}

// Get returns the provider of that name, or nil.
func Get(name string) CloudProvider { return provider.Get(name) }

// List returns the names of all known providers, sorted.
func List() []string { return provider.List() }

// checked is a provider whose settings are looked at before it is opened.
type checked struct {
	CloudProvider
	settings []*setting
}

func (c *checked) ParseCmd(flags *flag.FlagSet) {
	c.CloudProvider.ParseCmd(flags)
	c.settings = nil
	flags.VisitAll(func(f *flag.Flag) {
		if s, ok := f.Value.(*setting); ok {
			c.settings = append(c.settings, s)
		}
	})
}

func (c *checked) NewProvider() (Provider, error) { return c.NewProviderContext(context.Background()) }

// NewProviderContext implements provider.ContextOpener.
func (c *checked) NewProviderContext(ctx context.Context) (Provider, error) {
	var errs []error
	for _, s := range c.settings {
		errs = append(errs, s.check())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return provider.Open(ctx, c.CloudProvider)
}

// DefaultToEnv fills an empty field from the environment, else with the fallback.
func DefaultToEnv(field *string, env, fallback string) {
	*field = cmp.Or(*field, os.Getenv(env), fallback)
}
