// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"os"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/gobinary"
	"github.com/outrigger/outrigger/provider/plugin/pluginfile"
)

// loadGo opens a Go plugin and returns the providers that it registered. A nil
// want takes any file.
func (l *loader) loadGo(f *os.File, want *pluginfile.Sum) (_ table, err error) {
	if err := goPlugins(); err != nil {
		return nil, failedToOpen(f.Name(), err)
	}
	private, err := pluginfile.Copy(f, want, l.Getenv("TMPDIR"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, private.Remove()) }()
	found := true
	added, err := registered(private.Sum, func() (err error) {
		found, err = l.initGo(f.Name(), private.Path)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(added) == 0 && !found:
		return nil, failedToOpen(f.Name(), errors.New("it registered no provider: Failed to find the InitCloud function, and its init functions did not call provider.AddCloudProvider"))
	case len(added) == 0:
		return nil, failedToOpen(f.Name(), errors.New("its InitCloud registered no provider: it must call provider.AddCloudProvider"))
	}
	return added, nil
}

// initGo opens the copy of a plugin, whose file is called name in messages,
// and returns whether it has an InitCloud.
func (l *loader) initGo(name, path string) (found bool, err error) {
	host, err := gobinary.Host()
	if err != nil {
		return false, failedToOpen(name, err)
	}
	other, err := gobinary.Read(path)
	if err != nil {
		return false, failedToOpen(name, err)
	}
	if err := gobinary.Refuse(host, other); err != nil {
		return false, failedToOpen(name, err)
	}
	found, err = openGo(path)
	if errors.As(err, new(initError)) {
		return false, failedToOpen(name, err)
	}
	if err != nil {
		return false, failedToOpen(name, fmt.Errorf("%w; %s", err, gobinary.Advice(host, other, err.Error())))
	}
	return found, nil
}

// initError is a fault of the plugin's own code, not of how it was built.
type initError string

func (e initError) Error() string { return string(e) }

func failedToOpen(name string, err error) error {
	return fmt.Errorf("%w: Failed to open the external plugin %s: %w", provider.ErrInvalidArgument, name, err)
}
