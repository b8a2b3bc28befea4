// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginfile"
)

// folder loads the plugins of the folder, if one is named. One that cannot be loaded and
// is not called as the provider asked for is passed over, and reported: it must not take
// the daemon of another provider with it.
func (l *loader) folder() error {
	dir := l.Getenv(FolderVariable)
	if dir == "" {
		return nil
	}
	l.Log.Info("Loading cloud providers from " + dir)
	if err := pluginfile.CheckFolder(dir); err != nil {
		return fmt.Errorf("%s: %w", FolderVariable, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", provider.ErrPermissionDenied, FolderVariable, err)
	}
	var errs []error
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		err := l.entry(path)
		switch {
		case err == nil:
		case l.named(path):
			errs = append(errs, fmt.Errorf("%s: %w", FolderVariable, err))
		default:
			l.Log.Warn("a cloud provider's file cannot be loaded and is passed over", "file", path, "error", err)
			l.broken = append(l.broken, err)
		}
	}
	return errors.Join(errs...)
}

// entry loads one file of the folder. What cannot be meant as a plugin is
// passed over.
func (l *loader) entry(path string) error {
	if !strings.HasSuffix(path, ".so") && !l.named(path) {
		l.ignore(path, "it is not a Go plugin (*.so) and not named as the provider asked for, "+l.Name)
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		l.ignore(path, "it is a folder")
		return nil
	}
	f, err := pluginfile.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	kind, why := pluginfile.KindOf(f)
	switch {
	case errors.Is(why, provider.ErrPermissionDenied):
		return why
	case why != nil:
		l.ignore(path, why.Error())
		return nil
	}
	l.Log.Info("Found cloud provider file " + path)
	if kind == pluginfile.Program {
		return l.program(f, nil)
	}
	return l.goFile(f)
}

func (l *loader) ignore(path, why string) {
	l.Log.Info("Ignoring the file in the folder of cloud providers", "file", path, "reason", why)
}

func (l *loader) goFile(f *os.File) error {
	providers, err := l.loadGo(f, nil)
	if err != nil {
		return err
	}
	l.addGo(f.Name(), providers)
	return nil
}

// named reports whether the file is called as the provider asked for. Our own programs
// have a prefix.
func (l *loader) named(path string) bool {
	base := strings.TrimPrefix(filepath.Base(path), ProgramPrefix)
	return strings.EqualFold(base, l.Name) || strings.EqualFold(base, l.Name+".so")
}
