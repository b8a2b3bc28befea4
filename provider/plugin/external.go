// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginfile"
)

// socketScheme begins the address of a socket.
const socketScheme = "unix://"

// external loads the one plugin that is named with its hash, if that is
// switched on.
func (l *loader) external() error {
	on, err := enabled(l.Getenv(EnableVariable))
	if err != nil {
		return err
	}
	path := l.Getenv(PathVariable)
	switch {
	case !on:
		l.Log.Info("Cloud provider external plugin loading is disabled, skipping plugin loading")
		return nil
	case path == "":
		return fmt.Errorf("%w: Env %s is not set, but %s is true: set it to the plugin's file or unset the other", provider.ErrInvalidArgument, PathVariable, EnableVariable)
	case strings.HasPrefix(path, socketScheme):
		return l.socket(strings.TrimPrefix(path, socketScheme))
	}
	if err := l.file(path); err != nil {
		return fmt.Errorf("%s: %w", PathVariable, err)
	}
	return nil
}

func (l *loader) file(path string) error {
	if err := pluginfile.CheckFolder(filepath.Dir(path)); err != nil {
		return err
	}
	want, err := l.hash(path)
	if err != nil {
		return err
	}
	if !l.named(path) {
		return fmt.Errorf("%w: Filename of the external plugin: %s, is not match with CLOUD_PROVIDER: %s: name the file %[3]s.so (Go plugin), or %[3]s or provider-%[3]s (process plugin)",
			provider.ErrInvalidArgument, filepath.Base(path), l.Name)
	}
	f, err := pluginfile.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	kind, err := pluginfile.KindOf(f)
	if err != nil {
		return err
	}
	l.Log.Info(fmt.Sprintf("Loading external plugin %s from %s", l.Name, path))
	if kind == pluginfile.Program {
		return l.program(f, want)
	}
	return l.verifiedGo(f, want)
}

// hash reads the hash that the file must have.
func (l *loader) hash(path string) (*pluginfile.Sum, error) {
	text := l.Getenv(HashVariable)
	if text == "" {
		return nil, fmt.Errorf("%w: Env %s is not set: set it to the output of sha256sum %s | cut -d ' ' -f 1", provider.ErrInvalidArgument, HashVariable, path)
	}
	sum, err := pluginfile.ParseSum(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", HashVariable, err)
	}
	return &sum, nil
}

func (l *loader) verifiedGo(f *os.File, want *pluginfile.Sum) error {
	providers, err := l.loadGo(f, want)
	if err != nil {
		return err
	}
	for _, name := range providers.names() {
		if strings.EqualFold(name, l.Name) {
			l.Log.Info("Successfully opened the external plugin " + f.Name())
			l.addGo(f.Name(), providers)
			return nil
		}
	}
	return fmt.Errorf("%w: the Go plugin %s registered %s and not %s, which was asked for", provider.ErrInvalidArgument, f.Name(), strings.Join(providers.names(), ", "), l.Name)
}
