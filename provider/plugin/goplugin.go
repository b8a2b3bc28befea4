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

// loadGo opens a Go plugin and answers the providers that it registered. A nil
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
	added, err := registered(private.Sum, func() error { return l.initGo(f.Name(), private.Path) })
	if err != nil {
		return nil, err
	}
	if len(added) == 0 {
		return nil, fmt.Errorf("%w: the Go plugin %s registered no provider: its init function or InitCloud must call provider.AddCloudProvider", provider.ErrInvalidArgument, f.Name())
	}
	return added, nil
}

// initGo opens the copy of a plugin, whose file is called name in messages.
func (l *loader) initGo(name, path string) error {
	host, err := gobinary.Host()
	if err != nil {
		return failedToOpen(name, err)
	}
	other, err := gobinary.Read(path)
	if err != nil {
		return failedToOpen(name, err)
	}
	if err := gobinary.Refuse(host, other); err != nil {
		return failedToOpen(name, err)
	}
	found, err := openGo(path)
	if err != nil {
		return failedToOpen(name, fmt.Errorf("%w; %s", err, gobinary.Advice(host, other, err.Error())))
	}
	if !found {
		l.Log.Debug("Failed to find the InitCloud function", "file", name) // its init may have registered all
	}
	return nil
}

func failedToOpen(name string, err error) error {
	return fmt.Errorf("%w: Failed to open the external plugin %s: %w", provider.ErrInvalidArgument, name, err)
}
