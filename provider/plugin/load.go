// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/arguments"
)

// Carrier is how a provider comes into this program.
type Carrier string

// ProgramPrefix begins the file names of this project's own providers, as in
// provider-openstack for openstack.
const ProgramPrefix = "provider-"

// Carriers.
const (
	BuiltIn  Carrier = "built in"
	GoPlugin Carrier = "Go plugin"
	Process  Carrier = "process plugin"
	Socket   Carrier = "socket"
)

// ErrUnsupported is that nothing is called as the provider asked for. Operators
// search for these words.
var ErrUnsupported = errors.New("Unsupported cloud provider")

// Options select the provider to load.
type Options struct {
	// Name is the name of the provider.
	Name string
	// Getenv is os.Getenv if nil.
	Getenv func(string) string
	// Log is slog.Default if nil.
	Log *slog.Logger
	// Client is the name under which a socket's server keeps the configurations of this
	// program. Two programs must not have the same; the default is the program's file
	// name.
	Client string
	// The fields below are for process plugins and sockets. Zero values mean the
	// defaults of package process.

	// Ready is how long a plugin may take until its first reply.
	Ready time.Duration
	// Alive is the time between liveness checks of a process plugin.
	Alive time.Duration
	// Wait is how long a call waits for a plugin that is being restarted.
	Wait time.Duration
}

// Loaded is the provider asked for.
type Loaded struct {
	Name    string
	Carrier Carrier
	// Path is the file or the socket; empty for a built-in provider.
	Path  string
	Cloud provider.CloudProvider

	closer io.Closer
}

// Open opens the provider of a manager that was loaded, or of a fresh one of its kind.
// Calls whose arguments no provider can take do not reach it.
func Open(ctx context.Context, cloud provider.CloudProvider) (provider.Provider, error) {
	p, err := provider.Open(ctx, cloud)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return nil, fmt.Errorf("%w: NewProvider returned neither a provider nor an error", provider.ErrUnknown)
	}
	return arguments.Checked(p), nil
}

// Close ends the plugin's process or closes its socket. The provider cannot
// be used any more.
func (l *Loaded) Close() error {
	if l.closer == nil {
		return nil
	}
	return l.closer.Close()
}

// Load returns the provider asked for, from wherever the environment says it
// comes. Its error says what is wrong and what to do.
func Load(ctx context.Context, o Options) (*Loaded, error) {
	l := &loader{Options: o.withDefaults(), ctx: ctx, builtIn: snapshot()}
	if err := errors.Join(l.folder(), l.external()); err != nil {
		return nil, l.giveUp(err)
	}
	chosen, err := l.choose()
	if err != nil {
		return nil, l.giveUp(err)
	}
	return chosen.open()
}

func (o Options) withDefaults() Options {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Client == "" {
		o.Client = filepath.Base(os.Args[0])
	}
	if o.Ready == 0 {
		o.Ready = 10 * time.Second
	}
	if o.Wait == 0 {
		o.Wait = 5 * time.Second
	}
	return o
}

// loader is one run of [Load].
type loader struct {
	Options
	ctx     context.Context
	builtIn table
	found   []candidate
	// broken is why files of the folder were passed over.
	broken []error
}

// candidate is a provider from outside that could be the one asked for.
type candidate struct {
	name    string
	carrier Carrier
	path    string
	// open makes it ready; drop releases what open would have used.
	open func() (*Loaded, error)
	drop func() error
}

func (l *loader) add(c candidate) { l.found = append(l.found, c) }

// addGo notes the providers that a Go plugin registered.
func (l *loader) addGo(path string, providers table) {
	for _, name := range providers.names() {
		l.add(candidate{name: name, carrier: GoPlugin, path: path, open: func() (*Loaded, error) {
			return &Loaded{Name: name, Carrier: GoPlugin, Path: path, Cloud: providers[name]}, nil
		}})
	}
}

// choose returns the one of the name asked for.
func (l *loader) choose() (candidate, error) {
	if err := l.doubles(); err != nil {
		return candidate{}, err
	}
	for _, c := range l.found {
		if !strings.EqualFold(c.name, l.Name) {
			continue
		}
		if l.builtIn[l.Name] != nil {
			l.Log.Warn("the external provider replaces the built-in one of the same name", "provider", l.Name, "file", c.path)
		}
		return c, nil
	}
	if cloud := l.builtIn[l.Name]; cloud != nil {
		return candidate{open: func() (*Loaded, error) {
			return &Loaded{Name: l.Name, Carrier: BuiltIn, Cloud: cloud}, nil
		}}, nil
	}
	return candidate{}, l.unsupported()
}

// doubles refuses two plugins of one name: which of them wins would be luck.
func (l *loader) doubles() error {
	byName := map[string]candidate{}
	var errs []error
	for _, c := range l.found {
		key := strings.ToLower(c.name)
		if first, taken := byName[key]; taken && !strings.EqualFold(c.name, l.Name) {
			l.Log.Warn("two plugins are one provider, which is not the one asked for", "provider", c.name, "files", []string{first.path, c.path})
			continue
		} else if taken {
			errs = append(errs, fmt.Errorf("%w: two plugins are the provider %s: %s (%s) and %s (%s): remove one of them",
				provider.ErrInvalidArgument, c.name, first.path, first.carrier, c.path, c.carrier))
			continue
		}
		byName[key] = c
	}
	return errors.Join(errs...)
}

func (l *loader) unsupported() error {
	text := "none is built in"
	if len(l.builtIn) > 0 {
		text = "built in: " + strings.Join(l.builtIn.names(), ", ")
	}
	var outside []string
	for _, c := range l.found {
		outside = append(outside, c.name)
	}
	if len(outside) > 0 {
		text += "; from plugins: " + strings.Join(outside, ", ")
	}
	err := fmt.Errorf("%w: %s: %w (%s); a plugin is named by %s or %s", ErrUnsupported, l.Name, provider.ErrNotFound, text, FolderVariable, PathVariable)
	if len(l.broken) > 0 {
		err = fmt.Errorf("%w; files of %s that cannot be loaded: %w", err, FolderVariable, errors.Join(l.broken...))
	}
	return err
}

// giveUp releases what the candidates hold.
func (l *loader) giveUp(err error) error {
	for _, c := range l.found {
		if c.drop != nil {
			err = errors.Join(err, c.drop())
		}
	}
	return err
}
