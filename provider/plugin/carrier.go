// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginfile"
	"github.com/outrigger/outrigger/provider/plugin/process"
	"github.com/outrigger/outrigger/provider/plugin/remote"
)

// program notes a process plugin, whose sealed copy is made now and started
// when it is chosen.
func (l *loader) program(f *os.File, want *pluginfile.Sum) error {
	sealed, err := pluginfile.Seal(f, want)
	if err != nil {
		return err
	}
	path := f.Name()
	l.add(candidate{
		name: l.Name, carrier: Process, path: path, drop: sealed.Close,
		open: func() (*Loaded, error) { return l.startProcess(path, sealed) },
	})
	return nil
}

func (l *loader) startProcess(path string, sealed *os.File) (*Loaded, error) {
	backend := &processBackend{}
	link := remote.NewLink(backend, path, l.Client)
	supervisor, about, err := process.Start(l.ctx, process.Options{
		Name: l.Name, Path: path, Program: sealed, Log: l.Log, Getenv: l.Getenv,
		Ready: l.Ready, Alive: l.Alive, Wait: l.Wait, Restore: link.Restore,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: Failed to open the external plugin: %w", path, err)
	}
	backend.Supervisor = supervisor
	l.Log.Info("Successfully opened the external plugin "+path, "provider", about.Name, "version", about.Version, "pid", supervisor.Pid())
	return &Loaded{Name: l.Name, Carrier: Process, Path: path, Cloud: remote.NewManager(link, about, l.Getenv), closer: supervisor}, nil
}

// processBackend is a supervisor that is known only after its link.
type processBackend struct{ *process.Supervisor }

func (b *processBackend) Conn(ctx context.Context) (grpc.ClientConnInterface, func(error) error, error) {
	return b.Supervisor.Conn(ctx)
}

// socket notes a provider that somebody else runs.
func (l *loader) socket(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%w: %s: %q is not an absolute path: write unix:///path", provider.ErrInvalidArgument, PathVariable, path)
	}
	if l.Getenv(HashVariable) != "" {
		l.Log.Warn(HashVariable + " is not used: a socket has no file to verify")
	}
	if err := remote.CheckSocket(path); err != nil {
		return fmt.Errorf("%s: %w", PathVariable, err)
	}
	l.add(candidate{name: l.Name, carrier: Socket, path: socketScheme + path, open: func() (*Loaded, error) { return l.dialSocket(path) }})
	return nil
}

func (l *loader) dialSocket(path string) (*Loaded, error) {
	l.Log.Info(fmt.Sprintf("Loading external plugin %s from %s", l.Name, socketScheme+path))
	socket, about, err := remote.Dial(l.ctx, path, l.Ready, l.Wait)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", PathVariable, err)
	}
	if err := process.CheckName(l.Name, about, socketScheme+path); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	l.Log.Info("Successfully opened the external plugin "+socketScheme+path, "provider", about.Name, "version", about.Version)
	link := remote.NewLink(socket, socketScheme+path, l.Client)
	return &Loaded{Name: l.Name, Carrier: Socket, Path: socketScheme + path, Cloud: remote.NewManager(link, about, l.Getenv), closer: socket}, nil
}
