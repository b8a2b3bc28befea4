// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet"
	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/internal/nocloud"
)

// A template is a VM that was saved when it had booted and waited for its seed.
// An instance that is restored from it maps the saved memory copy-on-write and
// goes on from there as itself: its seed disk has its user-data, a MAC
// address, random bytes and the time.

// Names in a template's folder.
const (
	memoryName = "memory"
	stateName  = "state"
)

const (
	// templateWait bounds the boot of a template: 2 s on an idle machine.
	templateWait = 2 * time.Minute
	// pollTemplate is how often its console and its progress are looked at.
	pollTemplate = 5 * time.Millisecond
	// templateRoom is the least room on disk beside the memory, in bytes.
	templateRoom = 64 << 20
	// maxTemplates are kept, those that were used last.
	maxTemplates = 8
)

// findTemplate sets the template that r is restored from, which it makes if
// there is none yet. Without one the instance boots.
func (p *Provider) findTemplate(ctx context.Context, r *record) error {
	if !p.templates(r) {
		return nil
	}
	dir, err := p.template(ctx, r)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		p.cfg.log().Warn("the VM boots: none could be saved to restore it from", "instance", r.ID, "folder", p.cfg.TemplateDir, "error", err)
		return nil
	}
	r.Template = dir
	return nil
}

// templates reports whether an instance may be restored: its image has to say that its
// guest knows how to.
func (p *Provider) templates(r *record) bool {
	wanted := p.cfg.Templates == TemplatesAlways || p.cfg.Templates == TemplatesAuto && r.Accel == AccelTCG
	return wanted && r.Boot.Initrd != "" && knowsTemplates(r.Boot.Initrd)
}

func knowsTemplates(initrd string) bool {
	file, err := os.Open(initrd)
	if err != nil {
		return false
	}
	defer file.Close()
	head := make([]byte, 512)
	n, _ := io.ReadFull(file, head)
	return bytes.Contains(head[:n], []byte(nocloud.TemplateMark+"\x00"))
}

// template returns the folder of the template for r.
func (p *Provider) template(ctx context.Context, r *record) (string, error) {
	t := templateOf(r)
	key, err := p.templateKey(t)
	if err != nil {
		return "", err
	}
	parent, err := filepath.Abs(p.cfg.TemplateDir)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(parent, key)
	if use(dir) {
		return dir, nil
	}
	lock, err := statefile.Acquire(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer lock.ReleaseAndRemove()
	if use(dir) { // somebody else has made it meanwhile
		return dir, nil
	}
	p.cfg.log().Info("saving a VM, from which those of its size and image are restored", "folder", dir)
	begin := time.Now()
	if err := p.makeTemplate(ctx, t, dir); err != nil {
		return "", err
	}
	p.cfg.log().Info("a VM was saved", "folder", dir, "took", time.Since(begin).Round(time.Millisecond))
	prune(parent)
	return dir, nil
}

// templateOf is the VM from which all of r's kind can be restored.
func templateOf(r *record) *record {
	t := *r
	t.ID, t.Key, t.UUID, t.Pod, t.saving = "template", "", "00000000-0000-4000-8000-000000000000", "", true
	t.MAC = "02:00:00:00:00:01" // until a seed says another
	return &t
}

// use reports whether there is a template, and marks it as used.
func use(dir string) bool {
	now := time.Now()
	return os.Chtimes(dir, now, now) == nil
}

// templateKey is of everything that a saved VM depends on. It is of one boot of
// this machine, after which nobody knows whether all of a file had reached the disk.
func (p *Provider) templateKey(t *record) (string, error) {
	binary, err := p.binary()
	if err != nil {
		return "", err
	}
	boot, err := bootID()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, boot, cpuModelName(), t.Scratch, seedSize, strings.Join(arguments(t, useVhost(t.Accel)), "\x00"))
	for _, path := range []string{binary, t.Boot.Kernel, t.Boot.Initrd} {
		var info unix.Stat_t
		if err := unix.Stat(path, &info); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		fmt.Fprintln(hash, path, info.Dev, info.Ino, info.Size, info.Mtim, info.Ctim)
	}
	return ofBoot(boot) + hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// ofBoot begins the names of the templates that were made since this machine booted.
func ofBoot(boot string) string { return boot[:min(8, len(boot))] + "-" }

// makeTemplate boots a VM, saves it and ends it; what it makes has its name
// when it is complete.
func (p *Provider) makeTemplate(ctx context.Context, t *record, dir string) error {
	staged := filepath.Join(filepath.Dir(dir), newPrefix+filepath.Base(dir))
	if err := os.RemoveAll(staged); err != nil {
		return fmt.Errorf("remove a leftover: %w", err)
	}
	if err := os.MkdirAll(staged, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(staged)
	if err := enoughRoom(staged, t.Memory<<20); err != nil {
		return err
	}
	if err := blankDisks(staged, t.Scratch); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, templateWait)
	defer cancel()
	if err := p.saveVM(ctx, t, staged); err != nil {
		return err
	}
	for _, name := range []string{seedName, scratchName, qmpName, outputName} {
		if err := removeFile(filepath.Join(staged, name)); err != nil {
			return err
		}
	}
	return os.Rename(staged, dir)
}

// enoughRoom: a VM whose memory finds no room on the disk is killed by SIGBUS.
func enoughRoom(dir string, memory int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return err
	}
	if free, want := int64(fs.Bavail)*fs.Bsize, memory+templateRoom; free < want {
		return fmt.Errorf("%w: %d MiB are free in %s, and a saved VM may need %d", syscall.ENOSPC, free>>20, dir, want>>20)
	}
	return nil
}

// blankDisks makes disks of the sizes that instances have, with nothing on them.
func blankDisks(dir string, scratchGiB int64) error {
	sizes := map[string]int64{seedName: seedSize}
	if scratchGiB > 0 {
		sizes[scratchName] = scratchGiB << 30
	}
	for name, size := range sizes {
		path := filepath.Join(dir, name)
		if err := errors.Join(createFile(path), os.Truncate(path, size)); err != nil {
			return err
		}
	}
	return nil
}

// saveVM boots t in dir and saves it there. Its QEMU ends with it, and with
// this process.
func (p *Provider) saveVM(ctx context.Context, t *record, dir string) error {
	// The signal comes when the thread ends that started the process (prctl(2), PR_SET_PDEATHSIG).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tap, err := localnet.LooseTap()
	if err != nil {
		return err
	}
	defer tap.Close()
	output, err := os.OpenFile(filepath.Join(dir, outputName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd, err := p.command(t, dir, output)
	if err != nil {
		return err
	}
	cmd.ExtraFiles = []*os.File{tap}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	defer func() {
		cmd.Process.Kill()
		<-ended
	}()
	if err := p.awaitMachine(ctx, dir, ended); err != nil {
		return err
	}
	if err := awaitReady(ctx, dir, ended); err != nil {
		return err
	}
	return save(ctx, dir)
}

// awaitReady returns when the guest waits for its seed.
func awaitReady(ctx context.Context, dir string, ended <-chan struct{}) error {
	for {
		console, err := os.ReadFile(filepath.Join(dir, consoleName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if bytes.Contains(console, []byte(nocloud.TemplateReady)) {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("the VM ended while it booted; its console's last words: %q", lastLine(console))
		case <-ctx.Done():
			return fmt.Errorf("the VM did not get to where it can be saved (an image of an earlier version cannot be): %w; its console's last words: %q", context.Cause(ctx), lastLine(console))
		case <-time.After(pollTemplate):
		}
	}
}

func lastLine(console []byte) string {
	lines := strings.Split(strings.TrimSpace(string(console[max(0, len(console)-512):])), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// save writes the machine's state without its memory, which is in a file already.
func save(ctx context.Context, dir string) error {
	m, err := dialMonitor(ctx, dir)
	if err != nil {
		return err
	}
	defer m.close()
	defer m.obey(ctx)()
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

// restore starts QEMU for an instance with its template's memory and state.
func (p *Provider) restore(ctx context.Context, r *record) error {
	var files []*os.File
	for _, name := range []string{memoryName, stateName} { // memoryFD, stateFD
		file, err := os.OpenFile(filepath.Join(r.Template, name), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		files = append(files, file)
	}
	// What the VM said before it was saved.
	console, err := os.ReadFile(filepath.Join(r.Template, consoleName))
	if err != nil {
		return err
	}
	if err := p.startProcess(ctx, r, console, files...); err != nil {
		return err
	}
	m, err := dialMonitor(ctx, p.store.folder(r.ID))
	if err != nil {
		return p.startFailure(p.store.folder(r.ID), err)
	}
	defer m.close()
	defer m.obey(ctx)()
	for _, step := range []func() error{
		func() error { return m.call("migrate-set-capabilities", ignoreSharedMemory, nil) },
		func() error {
			return m.call("migrate-incoming", map[string]string{"uri": fmt.Sprintf("fd:%d", stateFD)}, nil)
		},
		func() error { return m.await(ctx, "query-status", "paused", "inmigrate") },
		func() error { return m.execute("cont") },
	} {
		if err := step(); err != nil {
			return p.startFailure(p.store.folder(r.ID), err)
		}
	}
	return nil
}

// await asks for a status until it is want, for as long as it is one of the others.
func (m *monitor) await(ctx context.Context, query, want string, others ...string) error {
	for {
		var now struct {
			Status string `json:"status"`
			Error  string `json:"error-desc"`
		}
		if err := m.call(query, nil, &now); err != nil {
			return err
		}
		switch {
		case now.Status == want:
			return nil
		case !slices.Contains(others, now.Status):
			return fmt.Errorf("QMP %s: %s %s", query, now.Status, now.Error)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollMonitor):
		}
	}
}

// prune removes what nobody uses: templates of earlier boots of this machine, what killed
// processes left, and all but the templates that were used last. VMs that were restored from
// them keep what they have mapped.
func prune(parent string) {
	boot, err := bootID()
	entries, _ := os.ReadDir(parent)
	var current []fs.FileInfo
	for _, entry := range entries {
		info, infoErr := entry.Info()
		path := filepath.Join(parent, entry.Name())
		key, staged := strings.CutPrefix(entry.Name(), newPrefix)
		switch {
		case errors.Join(err, infoErr) != nil || !entry.IsDir():
		case staged:
			removeIfFree(path, filepath.Join(parent, key+".lock"))
		case !strings.HasPrefix(key, ofBoot(boot)):
			os.RemoveAll(path)
		default:
			current = append(current, info)
		}
	}
	slices.SortFunc(current, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, old := range current[min(maxTemplates, len(current)):] {
		os.RemoveAll(filepath.Join(parent, old.Name()))
	}
}
