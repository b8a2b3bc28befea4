// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"context"
	"errors"
	"flag"
	"io"
	"maps"
	"slices"

	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin"
)

// ErrUnknown is of a variable that is not a setting of the provider.
var ErrUnknown = errors.New("unknown variables")

// OpenByEnvironment makes a provider of the variables of this process.
func OpenByEnvironment(ctx context.Context, cloud provider.CloudProvider) (provider.Provider, error) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	cloud.ParseCmd(flags) // some managers need it before the environment
	cloud.LoadEnv()
	return plugin.Open(ctx, cloud)
}

// Open makes a provider of variables: its own or, where there is none, what getenv returns.
// Own ones that are not settings of the provider, and not in others, are [ErrUnknown].
func Open(ctx context.Context, cloud provider.CloudProvider, own map[string]string, getenv func(string) string, others ...string) (provider.Provider, error) {
	configurable, ok := cloud.(config.Configurable)
	if !ok {
		return nil, program.Usagef("the provider can only be configured once, by the environment: build its manager with provider/config.New")
	}
	rest, values := maps.Clone(own), config.Values{}
	for _, field := range configurable.Schema().Fields {
		text, ok := rest[field.Env]
		if !ok && field.Env != "" {
			text = getenv(field.Env)
		}
		if delete(rest, field.Env); text != "" {
			values[field.Name] = text
		}
	}
	for _, name := range others {
		delete(rest, name)
	}
	if len(rest) > 0 {
		return nil, program.Usagef("%w %q; those of the provider are on its page of the reference", ErrUnknown, slices.Sorted(maps.Keys(rest)))
	}
	fresh := configurable.Fresh()
	fresh.Set(values)
	return plugin.Open(ctx, fresh)
}
