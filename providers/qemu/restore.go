// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
)

// save writes the machine's state without its memory, which is in a file already.
func save(ctx context.Context, dir string) error {
	m, err := dialMonitor(ctx, dir)
	if err != nil {
		return err
	}
	defer m.close()
	state, err := os.OpenFile(filepath.Join(dir, stateName), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer state.Close()
	const name = "state"
	if err := m.execute("stop"); err != nil {
		return err
	}
	if err := m.call("migrate-set-capabilities", ignoreSharedMemory, nil); err != nil {
		return err
	}
	if err := m.give(name, state); err != nil {
		return err
	}
	if err := m.call("migrate", map[string]string{"uri": "fd:" + name}, nil); err != nil {
		return err
	}
	return m.await(ctx, "query-migrate", "completed", "", "setup", "active", "device", "pre-switchover")
}

// ignoreSharedMemory leaves memory that is a shared file out of what is saved.
var ignoreSharedMemory = map[string]any{"capabilities": []map[string]any{{"capability": "x-ignore-shared", "state": true}}}

// brokenTemplate is an error of a template, not of this machine.
type brokenTemplate struct {
	error
	folder os.FileInfo // nil if it is not to be removed
}

// restore starts QEMU for an instance with its template's memory and state. Its error is
// a brokenTemplate when a boot is worth trying.
func (p *Provider) restore(ctx context.Context, r *record) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	folder, err := os.Stat(r.Template)
	if err != nil {
		return &brokenTemplate{err, nil}
	}
	files, err := openTemplate(r)
	defer func() {
		for _, file := range files {
			file.Close()
		}
	}()
	if err != nil {
		return &brokenTemplate{err, folder}
	}
	// What the VM said before it was saved.
	console, err := os.ReadFile(filepath.Join(r.Template, consoleName))
	if err != nil {
		return &brokenTemplate{err, folder}
	}
	if err := p.startProcess(ctx, r, console, files...); err != nil {
		return err
	}
	if err := load(ctx, p.store.folder(r.ID)); err != nil {
		if ctx.Err() != nil { // a slow machine says nothing of the template
			folder = nil
		}
		return &brokenTemplate{p.startFailure(p.store.folder(r.ID), err), folder}
	}
	return nil
}

// openTemplate opens what QEMU needs as memoryFD and stateFD. QEMU would take memory of any size,
// and make zeros of what is missing.
func openTemplate(r *record) (files []*os.File, err error) {
	for _, name := range []string{memoryName, stateName} {
		file, err := os.OpenFile(filepath.Join(r.Template, name), os.O_RDWR, 0)
		if err != nil {
			return files, err
		}
		files = append(files, file)
		info, err := file.Stat()
		if err != nil {
			return files, err
		}
		if size := info.Size(); size == 0 || name == memoryName && size != r.Memory<<20 {
			return files, fmt.Errorf("%s has %d bytes", file.Name(), size)
		}
	}
	return files, nil
}

// load has a QEMU that waits take over the saved state and run.
func load(ctx context.Context, folder string) error {
	m, err := dialMonitor(ctx, folder)
	if err != nil {
		return err
	}
	defer m.close()
	if err := m.call("migrate-set-capabilities", ignoreSharedMemory, nil); err != nil {
		return err
	}
	if err := m.call("migrate-incoming", map[string]string{"uri": fmt.Sprintf("fd:%d", stateFD)}, nil); err != nil {
		return err
	}
	if err := m.await(ctx, "query-status", "paused", "inmigrate"); err != nil {
		return err
	}
	return m.execute("cont")
}

// discardTemplate removes a template that is broken, unless somebody has made it
// again.
func discardTemplate(dir string, broken os.FileInfo) {
	lock, err := statefile.TryAcquire(dir + lockSuffix)
	if lock == nil || err != nil {
		return
	}
	defer lock.ReleaseAndRemove()
	if now, err := os.Stat(dir); err == nil && broken != nil && os.SameFile(now, broken) {
		os.RemoveAll(dir)
	}
}
