// SPDX-License-Identifier: Apache-2.0

// Package nodeinstall brings the containerd shim to a node: the program, and a
// runtime handler in containerd's configuration. Doing so again changes
// nothing, and it can be undone.
package nodeinstall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/outrigger/outrigger/internal/wholefile"
)

const (
	shimName    = "containerd-shim-outrigger-v2"
	runtimeType = "io.containerd.outrigger.v2"
)

// Installer is one node's. What has a tag is a setting of node-installer.
type Installer struct {
	Root    string `flag:"root" default:"/" usage:"folder where the node's file system is"`
	Handler string `flag:"handler" default:"kata-remote" usage:"name of the handler, as the RuntimeClass has it"`
	// These three are as the node sees them.
	Config     string `flag:"config" default:"/etc/containerd/config.toml" usage:"containerd's configuration file"`
	Bin        string `flag:"bin" default:"/usr/local/bin" usage:"folder for the shim"`
	ShimConfig string `flag:"shim-config" usage:"the shim's own configuration file on the node; empty: its default"`
	// The images have it there.
	Shim string `flag:"shim" default:"/usr/local/bin/containerd-shim-outrigger-v2" usage:"file to install as the shim"`
	// Restart restarts containerd; if nil, somebody else has to.
	Restart func(context.Context) error
	Log     *slog.Logger
}

func (i *Installer) path(path string) string { return filepath.Join(i.Root, path) }

// Install installs the shim and its handler on the node. It restarts containerd
// only if its configuration changed, and rolls the change back if containerd
// does not start with it.
func (i *Installer) Install(ctx context.Context) error {
	if err := i.installShim(); err != nil {
		return err
	}
	files, err := i.files()
	if err != nil {
		return err
	}
	to, err := target(files)
	if err != nil {
		return err
	}
	return i.edit(ctx, files, func(f *file) (string, error) {
		if f == to {
			return i.withHandler(f)
		}
		return i.withoutHandler(f)
	})
}

// Uninstall removes both again. Without them it does nothing.
func (i *Installer) Uninstall(ctx context.Context) error {
	files, err := i.files()
	if err != nil {
		return err
	}
	if err := i.edit(ctx, files, i.withoutHandler); err != nil {
		return err
	}
	return ignoreNotExist(os.Remove(i.path(filepath.Join(i.Bin, shimName))))
}

// ignoreNotExist ignores that a file does not exist.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Check returns what is missing on the node.
func (i *Installer) Check() error {
	files, err := i.files()
	if err != nil {
		return err
	}
	to, err := target(files)
	if err != nil {
		return err
	}
	if to.runtime(i.Handler) == nil {
		return fmt.Errorf("%s has no runtime handler %s", to.path, i.Handler)
	}
	for _, f := range files {
		if i.underway(f) {
			return fmt.Errorf("containerd has not been restarted since %s changed", f.path)
		}
	}
	_, err = os.Stat(i.path(filepath.Join(i.Bin, shimName)))
	return err
}

// installShim replaces the program in one step: shims of pods may start at any
// time, and those that run keep theirs.
func (i *Installer) installShim() error {
	program, err := os.ReadFile(i.Shim)
	if err != nil {
		return fmt.Errorf("the shim to install: %w", err)
	}
	to := i.path(filepath.Join(i.Bin, shimName))
	if there, err := os.ReadFile(to); err == nil && bytes.Equal(there, program) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := replace(to, program, 0o755); err != nil {
		return err
	}
	i.Log.Info("installed the shim", "file", filepath.Join(i.Bin, shimName))
	return nil
}

// before returns the path of the backup of a file. It is kept until containerd runs
// with the change. A backup that exists at the start is that of an interrupted
// attempt.
func (i *Installer) before(f *file) string { return i.path(f.path) + ".before-outrigger" }

func (i *Installer) underway(f *file) bool {
	_, err := os.Lstat(i.before(f))
	return err == nil
}

// edit changes files and restarts containerd if anything changed, or if an
// earlier attempt was interrupted.
func (i *Installer) edit(ctx context.Context, files []*file, edited func(*file) (string, error)) error {
	var changed []*file
	for _, f := range files {
		text, err := edited(f)
		if err != nil {
			return err
		}
		if text == f.text && !i.underway(f) {
			continue
		}
		if err := i.write(f, text); err != nil {
			return err
		}
		changed = append(changed, f)
	}
	if len(changed) == 0 {
		return nil
	}
	if err := i.restart(ctx); err != nil {
		return errors.Join(fmt.Errorf("containerd does not start with its changed configuration, which was rolled back: %w", err), i.takeBack(ctx, changed))
	}
	return i.settle(changed)
}

// write keeps the file as it is and writes it; an empty text removes it.
func (i *Installer) write(f *file, text string) error {
	if info, err := os.Lstat(i.path(f.path)); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is a link or not a regular file: pass the target with -config", f.path)
	}
	if !i.underway(f) {
		if err := os.MkdirAll(filepath.Dir(i.path(f.path)), 0o755); err != nil {
			return err
		}
		if err := replace(i.before(f), []byte(f.text), 0o600); err != nil {
			return err
		}
	}
	i.Log.Info("changing containerd's configuration", "file", f.path)
	return put(i.path(f.path), text)
}

func (i *Installer) takeBack(ctx context.Context, changed []*file) error {
	for _, f := range changed {
		text, err := os.ReadFile(i.before(f))
		if err != nil {
			return err
		}
		if err := put(i.path(f.path), string(text)); err != nil {
			return err
		}
	}
	if err := i.restart(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return i.settle(changed)
}

func (i *Installer) settle(changed []*file) error {
	for _, f := range changed {
		if err := os.Remove(i.before(f)); err != nil {
			return err
		}
	}
	return nil
}

func (i *Installer) restart(ctx context.Context) error {
	if i.Restart == nil {
		i.Log.Warn("containerd has to be restarted to use it")
		return nil
	}
	i.Log.Info("restarting containerd; pods stay")
	return i.Restart(ctx)
}

func put(path, text string) error {
	if text != "" {
		return replace(path, []byte(text), 0o644)
	}
	return ignoreNotExist(os.Remove(path))
}

// replace writes a file in one step, with the mode of the one before if there
// is one.
func replace(path string, data []byte, mode fs.FileMode) error {
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	return wholefile.Replace(path, data, mode)
}
