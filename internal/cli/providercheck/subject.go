// SPDX-License-Identifier: Apache-2.0

package providercheck

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/wholefile"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/plugin"
	"github.com/outrigger/outrigger/provider/plugin/remote"
)

// readyTimeout is how long a socket's server may take until it first answers,
// awayTimeout how long it may be away later.
const (
	readyTimeout = 10 * time.Second
	awayTimeout  = 5 * time.Second
)

// subjects makes the subject of each check.
type subjects struct {
	name     string
	template conformance.Subject
	// first and second are two hosts of the provider, two processes of a plugin or two
	// clients of a socket: checks create an instance at one and read it at the other.
	first, second *host
	// noAccess are hosts with a setting that the cloud refuses, such as the id of a
	// deleted credential, by name.
	noAccess map[string]*host
}

// host is one loaded provider.
type host struct {
	name    string
	cloud   provider.CloudProvider
	closers []io.Closer
}

func (h *host) close() error {
	var errs []error
	for _, c := range slices.Backward(h.closers) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// open loads the provider twice, and opens it to check the settings.
func (a *app) open(ctx context.Context) (*subjects, error) {
	first, err := a.load(ctx, "first", a.set)
	if err != nil {
		return nil, err
	}
	p, err := plugin.Open(ctx, first.cloud)
	if err != nil {
		return nil, errors.Join(err, first.close())
	}
	s := &subjects{name: first.name, template: a.subject, first: first, noAccess: map[string]*host{}}
	if err = provider.VerifyConfig(ctx, p); err != nil { // each check would try for long
		err = fmt.Errorf("the provider cannot be checked: %w", err)
	} else {
		s.second, err = a.load(ctx, "second", a.set)
	}
	if err == nil {
		err = s.tryBoth(ctx)
	}
	for i, setting := range a.noAccess {
		if err != nil {
			break
		}
		name, _, _ := strings.Cut(setting, "=")
		s.noAccess["another "+name], err = a.load(ctx, fmt.Sprintf("no-access-%d", i), append(slices.Clone(a.set), setting))
	}
	if err = errors.Join(err, provider.Teardown(context.WithoutCancel(ctx), p)); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// tryBoth opens the second host while the first is open. A server whose provider can
// have only one configuration refuses that; then the first host is used for both.
func (s *subjects) tryBoth(ctx context.Context) error {
	p, err := plugin.Open(ctx, s.second.cloud)
	if err == nil {
		return provider.Teardown(context.WithoutCancel(ctx), p)
	}
	err = s.second.close()
	s.second = s.first
	return err
}

// load returns a host with its settings.
func (a *app) load(ctx context.Context, which string, set []string) (*host, error) {
	client := fmt.Sprintf("provider-check-%d-%s", os.Getpid(), which)
	overlay := map[string]string{}
	if a.recorder != nil {
		maps.Copy(overlay, a.recorder.Env())
	}
	getenv := func(name string) string {
		if value, ok := overlay[name]; ok {
			return value
		}
		return a.getenv(name)
	}
	h, err := a.loadFrom(ctx, client, getenv, overlay)
	if err != nil {
		return nil, err
	}
	if a.recorder != nil {
		a.recorder.Hide(secrets(h.cloud, getenv)...)
	}
	if err := configure(h.cloud, set, overlay); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

func (a *app) loadFrom(ctx context.Context, client string, getenv func(string) string, overlay map[string]string) (*host, error) {
	if a.endpoint != "" {
		return a.dial(ctx, client, getenv)
	}
	sum, err := wholefile.SHA256(a.plugin)
	if err != nil {
		return nil, fmt.Errorf("--plugin: %w", err)
	}
	path, err := filepath.Abs(a.plugin)
	if err != nil {
		return nil, err
	}
	// The user named the file, so its current content is trusted.
	overlay[plugin.FolderVariable] = ""
	overlay[plugin.EnableVariable], overlay[plugin.PathVariable], overlay[plugin.HashVariable] = "true", path, sum
	name := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(path), ".so"), plugin.ProgramPrefix)
	log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})) // of the plugin
	loaded, err := plugin.Load(ctx, plugin.Options{Name: name, Getenv: getenv, Client: client, Log: log})
	if err != nil {
		return nil, fmt.Errorf("--plugin: %w", err)
	}
	cloud := loaded.Cloud
	if a.recorder != nil && loaded.Carrier != plugin.Process {
		return nil, errors.Join(program.Usagef("--record: %s is not a process plugin", a.plugin), loaded.Close())
	}
	if c, ok := cloud.(config.Configurable); ok && loaded.Carrier == plugin.GoPlugin {
		cloud = c.Fresh()
	}
	return &host{loaded.Name, cloud, []io.Closer{loaded}}, nil
}

func (a *app) dial(ctx context.Context, client string, getenv func(string) string) (*host, error) {
	path, ok := strings.CutPrefix(a.endpoint, "unix://")
	if !ok || !filepath.IsAbs(path) {
		return nil, program.Usagef("--endpoint %q: want unix:///PATH", a.endpoint)
	}
	socket, about, err := remote.Dial(ctx, path, readyTimeout, awayTimeout)
	if err != nil {
		return nil, fmt.Errorf("--endpoint: %w", err)
	}
	link := remote.NewLink(socket, a.endpoint, client)
	return &host{about.Name, remote.NewManager(link, about, getenv), []io.Closer{socket}}, nil
}

// secrets returns the values of a provider's secret settings.
func secrets(cloud provider.CloudProvider, getenv func(string) string) (list []string) {
	c, ok := cloud.(config.Configurable)
	if !ok {
		return nil
	}
	for _, f := range c.Schema().Fields {
		if f.Secret {
			list = append(list, getenv(f.Env))
		}
	}
	return list
}

// configure gives the manager its settings: those of --set, then those of the
// environment.
func configure(cloud provider.CloudProvider, set []string, overlay map[string]string) error {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	cloud.ParseCmd(flags)
	var errs []error
	for _, setting := range set {
		errs = append(errs, apply(cloud, flags, setting, overlay))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	cloud.LoadEnv()
	return nil
}

// apply applies one --set as a flag, or as a variable if the setting has no flag. Its
// errors do not contain the value, which may be a secret by mistake.
func apply(cloud provider.CloudProvider, flags *flag.FlagSet, setting string, overlay map[string]string) error {
	name, value, ok := strings.Cut(setting, "=")
	if !ok || name == "" {
		return program.Usagef("--set: want NAME=VALUE")
	}
	name = strings.TrimLeft(name, "-")
	c, configurable := cloud.(config.Configurable)
	if !configurable {
		return setFlag(flags, name, name, value)
	}
	fields := c.Schema().Fields
	i := slices.IndexFunc(fields, func(f config.Field) bool { return name == f.Name || name == f.Flag || name == f.Env })
	switch {
	case i < 0:
		return program.Usagef("--set %s: %s", name, whatThereIs(fields))
	case fields[i].Secret:
		return program.Usagef("--set %s: it is a secret, and command lines are public: set %s in the environment", name, fields[i].Env)
	case fields[i].Flag == "":
		overlay[fields[i].Env] = value
		return nil
	}
	return setFlag(flags, name, fields[i].Flag, value)
}

func setFlag(flags *flag.FlagSet, given, name, value string) error {
	if err := flags.Set(name, value); err != nil {
		return program.Usagef("--set %s: %w", given, err)
	}
	return nil
}

func whatThereIs(fields []config.Field) string {
	if len(fields) == 0 {
		return "the provider has no settings here: whoever started it has configured it"
	}
	var names []string
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return "the provider has no such setting; there are " + strings.Join(names, ", ")
}

// open makes the subject of one check.
func (s *subjects) open(t conformance.T) conformance.Subject {
	subject := s.template
	subject.Provider = newProvider(t, s.first)
	subject.Reopen = func() provider.Provider { return newProvider(t, s.second) }
	subject.Open = func(ctx context.Context) (provider.Provider, error) { return plugin.Open(ctx, s.second.cloud) }
	subject.Unchecked = true // plugin.Open checks
	for why, h := range s.noAccess {
		if subject.NoAccess == nil {
			subject.NoAccess = map[string]func() provider.Provider{}
		}
		subject.NoAccess[why] = func() provider.Provider {
			p, err := plugin.Open(t.Context(), h.cloud)
			if err != nil {
				return nil
			}
			return p
		}
	}
	return subject
}

func newProvider(t conformance.T, h *host) provider.Provider {
	p, err := plugin.Open(t.Context(), h.cloud)
	if err != nil {
		t.Fatalf("the provider cannot be opened: %v", err)
	}
	return p
}

func (s *subjects) close() error {
	err := s.first.close()
	for _, h := range s.noAccess {
		if h != nil {
			err = errors.Join(err, h.close())
		}
	}
	if s.second != nil && s.second != s.first {
		err = errors.Join(err, s.second.close())
	}
	return err
}
