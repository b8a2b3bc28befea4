// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
)

func fieldToWire(f config.Field) *pluginpb.Field {
	return &pluginpb.Field{
		Name: f.Name, Flag: f.Flag, Env: f.Env, Type: string(f.Type), Unit: f.Unit, Default: f.Default,
		Required: f.Required, Secret: f.Secret, Choices: f.Choices, Min: f.Min, Max: f.Max, Usage: f.Usage, Labels: f.Labels,
	}
}

func fieldFromWire(m *pluginpb.Field) config.Field {
	return config.Field{
		Name: m.Name, Flag: m.Flag, Env: m.Env, Type: config.Type(m.Type), Unit: m.Unit, Default: m.Default,
		Required: m.Required, Secret: m.Secret, Choices: m.Choices, Min: m.Min, Max: m.Max, Usage: m.Usage, Labels: m.Labels,
	}
}

var (
	flagPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	envPattern  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// schemaFromWire checks what package flag would panic about.
func schemaFromWire(m *pluginpb.GetInfoResponse) (config.Schema, error) {
	schema := config.Schema{Provider: m.Name}
	taken := map[string]bool{}
	for _, field := range m.Schema {
		f := fieldFromWire(field)
		switch {
		case f.Name == "" || f.Flag == "" && f.Env == "":
			return schema, fmt.Errorf("the setting %q has no name, or neither flag nor variable", f.Name)
		case f.Flag != "" && !flagPattern.MatchString(f.Flag):
			return schema, fmt.Errorf("the setting %q: %q is not a name of a flag", f.Name, f.Flag)
		case f.Env != "" && !envPattern.MatchString(f.Env):
			return schema, fmt.Errorf("the setting %q: %q is not a name of a variable", f.Name, f.Env)
		case f.Default != "" && f.Check(f.Default) != nil:
			return schema, fmt.Errorf("the setting %q: its default is wrong: %w", f.Name, f.Check(f.Default))
		}
		for _, name := range []string{"setting " + f.Name, "flag " + f.Flag, "variable " + f.Env} {
			if taken[name] && !strings.HasSuffix(name, " ") {
				return schema, fmt.Errorf("the %s is there twice", name)
			}
			taken[name] = true
		}
		schema.Fields = append(schema.Fields, f)
	}
	return schema, nil
}

// SchemaOf returns the configuration schema of a provider: what it publishes,
// or what the flags tell that it registers. Settings that such a provider only
// reads from the environment are not in it.
func SchemaOf(name string, cloud provider.CloudProvider) config.Schema {
	if configurable, ok := cloud.(config.Configurable); ok {
		return configurable.Schema()
	}
	schema := config.Schema{Provider: name}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	cloud.ParseCmd(flags)
	flags.VisitAll(func(f *flag.Flag) { schema.Fields = append(schema.Fields, fieldOfFlag(f)) })
	return schema
}

// secretFlag tells by its name that a flag is secret: flags themselves do not
// say, and the default may come from the environment.
var secretFlag = regexp.MustCompile(`(?i)secret|password|passphrase|token|credential|api-?key|access-?key`)

func fieldOfFlag(f *flag.Flag) config.Field {
	_, usage := flag.UnquoteUsage(f)
	field := config.Field{Name: f.Name, Flag: f.Name, Type: typeOfFlag(f.Value), Default: f.DefValue, Usage: usage}
	field.Secret = secretFlag.MatchString(f.Name)
	if v, ok := f.Value.(interface {
		Variable() (env string, required, secret bool)
	}); ok { // of package compat
		var secret bool
		field.Env, field.Required, secret = v.Variable()
		field.Secret = field.Secret || secret
	}
	if field.Secret {
		field.Default = ""
	}
	if field.Check(field.Default) != nil {
		field.Default = ""
	}
	return field
}

func typeOfFlag(value flag.Value) config.Type {
	if b, ok := value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
		return config.Bool
	}
	getter, ok := value.(flag.Getter)
	if !ok {
		return config.String
	}
	switch getter.Get().(type) {
	case int, int64:
		return config.Int
	case time.Duration:
		return config.Duration
	}
	return config.String
}

// opener makes providers of a configuration.
type opener struct {
	name   string
	cloud  provider.CloudProvider
	schema config.Schema
}

// single says that the provider can have but one configuration.
func (o opener) single() bool {
	_, several := o.cloud.(config.Configurable)
	return !several
}

// open makes a provider. It may take long.
func (o opener) open(ctx context.Context, values config.Values) (p provider.Provider, err error) {
	if configurable, ok := o.cloud.(config.Configurable); ok {
		manager := configurable.Fresh()
		manager.Set(values)
		p, err = provider.Open(ctx, manager)
	} else {
		p, err = o.openByFlags(ctx, values)
	}
	if err == nil && p == nil {
		err = fmt.Errorf("%w: NewProvider of %s returned neither a provider nor an error", provider.ErrUnknown, o.name)
	}
	if err != nil {
		return nil, err
	}
	return arguments.Checked(p), nil // not every client is a host of this release
}

func (o opener) openByFlags(ctx context.Context, values config.Values) (provider.Provider, error) {
	flags := flag.NewFlagSet(o.name, flag.ContinueOnError)
	o.cloud.ParseCmd(flags)
	secret := map[string]bool{}
	for _, field := range o.schema.Fields {
		secret[field.Name] = field.Secret
	}
	for name, text := range values {
		err := flags.Set(name, text)
		switch {
		case err != nil && flags.Lookup(name) == nil:
			return nil, fmt.Errorf("%w: provider %s has no setting %q", provider.ErrInvalidArgument, o.name, name)
		case err != nil && secret[name]:
			err = errors.New("the value does not parse")
			fallthrough
		case err != nil:
			return nil, fmt.Errorf("%w: -%s: %w", provider.ErrInvalidArgument, name, err)
		}
	}
	o.cloud.LoadEnv()
	return provider.Open(ctx, o.cloud)
}
