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
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet"
	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/internal/nocloud"
	"github.com/outrigger/outrigger/internal/procid"
	"github.com/outrigger/outrigger/provider/kit/poll"
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
	// templateWait bounds what a pod waits for a template, its own or that of another pod: 2 s
	// on an idle machine. After it the VM boots.
	templateWait = 45 * time.Second
	// failedFor is the pause before the creation of a template is retried.
	failedFor = 10 * time.Minute
	// pollTemplate is how often its console and its progress are looked at.
	pollTemplate = 5 * time.Millisecond
	// templateRoom is the least room on disk beside the memory, in bytes.
	templateRoom = 64 << 20
	// maxTemplates are kept, those that were used last. With as many in use within
	// busyFor, VMs of other sizes boot.
	maxTemplates = 8
	busyFor      = 10 * time.Minute
	// pollLock is how often it is looked whether another pod's template is complete.
	pollLock = 50 * time.Millisecond
)

// findTemplate sets the template that r is restored from, which it makes if
// there is none yet. Without one the instance boots.
func (p *Provider) findTemplate(ctx context.Context, r *record) error {
	log := p.cfg.log().With("instance", r.ID, "folder", p.cfg.TemplateDir)
	switch {
	case !p.wantsTemplate(r):
		return nil
	case !knowsTemplates(r.Boot.Initrd):
		level := slog.LevelInfo
		if p.cfg.Templates == TemplatesAlways {
			level = slog.LevelWarn
		}
		log.Log(ctx, level, "the VM boots: its image is not one whose VMs can be saved", "initrd", r.Boot.Initrd)
		return nil
	}
	dir, err := p.template(ctx, r)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		log.Warn("the VM boots: there is none that it could be restored from", "error", err)
		return nil
	}
	r.Template = dir
	return nil
}

// wantsTemplate reports whether an instance shall be restored. A disk brings a system of its own.
func (p *Provider) wantsTemplate(r *record) bool {
	return r.Boot.Initrd != "" && (p.cfg.Templates == TemplatesAlways || p.cfg.Templates == TemplatesAuto && r.Accel == AccelTCG)
}

// knowsTemplates reports whether an initramfs says that its guest can be saved. It says so in its
// first bytes; one that is compressed does not.
func knowsTemplates(initrd string) bool {
	head, _ := headOf(initrd, 512)
	return bytes.Contains(head, []byte(nocloud.TemplateMark+"\x00"))
}

// template returns the folder of the template for r.
func (p *Provider) template(ctx context.Context, r *record) (string, error) {
	wait, cancel := context.WithTimeout(ctx, templateWait)
	defer cancel()
	t := templateOf(r)
	key, err := p.templateKey(t)
	if err != nil {
		return "", err
	}
	parent, err := ownFolder(p.cfg.TemplateDir)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(parent, key)
	lock, err := lockTemplate(wait, dir)
	if lock == nil || err != nil {
		return dir, err
	}
	defer lock.ReleaseAndRemove()
	// Each may need as much room as its VM has memory, so that only one is made at a time.
	others, err := statefile.TryAcquire(filepath.Join(parent, makingLock))
	if err != nil {
		return "", err
	}
	if others == nil {
		return "", errors.New("one of another size is being made")
	}
	defer others.ReleaseAndRemove()
	if err := prune(parent); err != nil {
		return "", err
	}
	p.cfg.log().Info("saving a VM, from which those of its size and image are restored", "folder", dir)
	begin := time.Now()
	if err := p.makeTemplate(wait, t, dir); err != nil {
		if ctx.Err() == nil { // else it is the pod that ended
			err = errors.Join(err, createFile(dir+failedSuffix))
		}
		return "", err
	}
	p.cfg.log().Info("a VM was saved", "folder", dir, "took", time.Since(begin).Round(time.Millisecond))
	return dir, nil
}

// Files beside the templates.
const (
	lockSuffix   = ".lock"
	failedSuffix = ".failed" // it could not be made, at the file's time
	makingLock   = "making" + lockSuffix
)

// lockTemplate returns the lock of whoever makes a template, or none when it is there.
func lockTemplate(ctx context.Context, dir string) (*statefile.Lock, error) {
	for {
		if use(dir) {
			return nil, nil
		}
		if info, err := os.Stat(dir + failedSuffix); err == nil && time.Since(info.ModTime()).Abs() < failedFor {
			return nil, fmt.Errorf("one could not be made at %s, see the log of then; it is tried again after %v", info.ModTime().Format(time.TimeOnly), failedFor)
		}
		lock, err := statefile.TryAcquire(dir + lockSuffix)
		if err != nil || lock != nil && !use(dir) {
			return lock, err
		}
		if lock != nil { // it was made meanwhile
			lock.ReleaseAndRemove()
			continue
		}
		if err := poll.Sleep(ctx, pollLock); err != nil {
			return nil, fmt.Errorf("wait for another pod's: %w", err)
		}
	}
}

// ownFolder makes the folder of the templates. What is in it becomes memory of VMs, so that nobody
// else may write there.
func ownFolder(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", err
	}
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if int(info.Uid) != os.Geteuid() || info.Mode&0o022 != 0 {
		return "", fmt.Errorf("%w: others may write in %s (user %d, mode %o): chown and chmod 0700 it, or name another folder with -qemu-template-dir", fs.ErrPermission, path, info.Uid, info.Mode&0o777)
	}
	return path, nil
}

// templateOf returns the VM from which all VMs like r can be restored.
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

// templateKey returns a hash of everything that a saved VM depends on. It includes the
// boot of this machine: after another boot it is unknown whether the whole file had
// reached the disk.
func (p *Provider) templateKey(t *record) (string, error) {
	binary, err := p.binary()
	if err != nil {
		return "", err
	}
	boot, err := procid.Boot()
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
		// Not Ctim: libvirtd changes the owner of files that its VMs boot, and back.
		fmt.Fprintln(hash, path, info.Dev, info.Ino, info.Size, info.Mtim)
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

// blankDisks makes disks of the sizes that instances have, with nothing on them, and the
// files that QEMU would make readable for others.
func blankDisks(dir string, scratchGiB int64) error {
	sizes := map[string]int64{seedName: seedSize, memoryName: 0, consoleName: 0}
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
	ended, err := begin(cmd)
	if err != nil {
		return err
	}
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

// templateName is the name of a template, of one that is being made, and of the files beside it.
var templateName = regexp.MustCompile(`^(\.new-)?([0-9a-f]{8}-[0-9a-f]{32})(\.lock|\.failed)?$`)

// prune removes what nobody uses: templates of earlier boots of this machine, what killed
// processes left, and those that were used longest ago, to make room for one more. It is an error
// when all are in use. VMs that were restored from them keep what they have mapped.
func prune(parent string) error {
	current, err := pruneOld(parent)
	if err != nil {
		return err
	}
	slices.SortFunc(current, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, old := range current[min(maxTemplates-1, len(current)):] {
		if time.Since(old.ModTime()) < busyFor {
			return fmt.Errorf("VMs of %d sizes and images were started within %v, and no more are saved", len(current), busyFor)
		}
		if err := os.RemoveAll(filepath.Join(parent, old.Name())); err != nil {
			return err
		}
	}
	return nil
}

// pruneOld returns the templates that can still be used, and removes the others.
func pruneOld(parent string) (current []fs.FileInfo, err error) {
	boot, err := procid.Boot()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		name := templateName.FindStringSubmatch(entry.Name())
		info, infoErr := entry.Info()
		if name == nil || infoErr != nil {
			continue
		}
		path, lock := filepath.Join(parent, name[0]), filepath.Join(parent, name[2]+lockSuffix)
		switch old := !strings.HasPrefix(name[2], ofBoot(boot)); {
		case name[3] == failedSuffix:
			if old || time.Since(info.ModTime()) > failedFor {
				os.Remove(path)
			}
		case name[1] != "" || name[3] == lockSuffix || old:
			removeIfFree(path, lock)
		default:
			current = append(current, info)
		}
	}
	return current, err
}
