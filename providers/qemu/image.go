// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// bootFrom returns what an instance starts from: the configured image, or the
// one that a pod names.
func (p *Provider) bootFrom(image string) (boot, error) {
	configured, err := p.configuredBoot()
	if err != nil || image == "" {
		return configured, err
	}
	path, err := p.allowedImage(image, configured)
	if err != nil {
		return boot{}, err
	}
	kind, err := imageKind(path)
	switch {
	case err != nil:
		return boot{}, err
	case kind == kindDisk:
		return boot{Disk: path, Firmware: p.cfg.Firmware}, nil
	case kind == kindUKI:
		return boot{Kernel: path, Firmware: p.cfg.Firmware}, nil
	case p.cfg.TPM == TPMOn:
		return boot{}, fmt.Errorf("%w: image %s is an initramfs, which nothing measures into the TPM (-qemu-tpm=on): name a disk or a unified kernel image", provider.ErrInvalidArgument, path)
	case configured.Initrd == "":
		return boot{}, fmt.Errorf("%w: image %s is an initramfs, and there is no kernel: set -qemu-kernel", provider.ErrInvalidArgument, path)
	}
	return boot{Kernel: kernelOf(path, configured), Initrd: path}, nil
}

// kernelOf returns what boots an initramfs that a pod names: the modules in it are of one kernel alone, and an image in
// a folder of its own brings that.
func kernelOf(initrd string, configured boot) string {
	own := filepath.Join(filepath.Dir(initrd), "vmlinux")
	if filepath.Dir(initrd) != filepath.Dir(configured.Initrd) && openable(own, os.O_RDONLY) == nil {
		return own
	}
	return configured.Kernel
}

func (p *Provider) configuredBoot() (boot, error) {
	from := boot{Kernel: p.cfg.Kernel, Initrd: p.cfg.Initrd, Disk: p.cfg.Disk}
	if from.Disk != "" {
		from.Firmware = p.cfg.Firmware
		return from, errors.Join(checkFile("disk", from.Disk), checkFile(firmware, from.Firmware))
	}
	if from.Kernel == "" && p.cfg.TPM == TPMOn {
		var err error
		if from.Kernel, err = findUKI(); err != nil {
			return boot{}, err
		}
	}
	if isUKI(from.Kernel) {
		from.Firmware = p.cfg.Firmware
		path, err := filepath.Abs(from.Kernel) // QEMU runs in the instance's folder
		from.Kernel = path
		return from, errors.Join(err, checkFile(firmware, from.Firmware))
	}
	if from.Kernel == "" || from.Initrd == "" {
		kernel, initrd, err := findImage()
		if err != nil {
			return boot{}, err
		}
		from.Kernel, from.Initrd = cmp.Or(from.Kernel, kernel), cmp.Or(from.Initrd, initrd)
	}
	for _, path := range []*string{&from.Kernel, &from.Initrd} {
		if abs, err := filepath.Abs(*path); err == nil {
			*path = abs // QEMU runs in the instance's folder
		}
	}
	return from, errors.Join(checkFile("kernel", from.Kernel), checkFile("initramfs", from.Initrd))
}

func checkFile(what, path string) error {
	err := openable(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: no %s: %w", provider.ErrNotFound, what, err)
		if what == firmware {
			err = fmt.Errorf("%w; install it with `apt-get install ovmf`, or set -qemu-firmware", err)
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// allowedImage resolves the name that a pod gave: within the image folder, so
// that no pod gets to see other files of this machine.
func (p *Provider) allowedImage(image string, configured boot) (string, error) {
	dir := p.cfg.ImageDir
	if dir == "" {
		dir = filepath.Dir(cmp.Or(configured.Initrd, configured.Disk, configured.Kernel))
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("image folder: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", fmt.Errorf("image folder: %w", err)
	}
	if !filepath.IsAbs(image) {
		image = filepath.Join(dir, image)
	}
	path, err := filepath.EvalSymlinks(image)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %w: no image %s", provider.ErrInvalidArgument, provider.ErrNotFound, image)
	}
	if err != nil {
		return "", fmt.Errorf("image: %w", err)
	}
	if !strings.HasPrefix(path, dir+"/") {
		return "", fmt.Errorf("%w: image %s is not in %s (-qemu-image-dir)", provider.ErrInvalidArgument, image, dir)
	}
	return path, nil
}

const (
	kindInitrd = "initramfs"
	kindDisk   = "disk"
	kindUKI    = "unified kernel image"
)

// firmware is what checkFile calls it.
const firmware = "UEFI firmware"

// Offsets and sizes in a PE image (Microsoft PE Format): where the offset of the signature is; from there the number of sections and the size
// of the optional header, which the table of sections follows; an entry of that, which begins with the section's name.
const (
	peOffsetAt, peSections, peOptionalSize, peHeaders = 0x3c, 6, 20, 24
	peEntry, peName                                   = 40, 8
	// peHead holds all headers of systemd's stub, in bytes.
	peHead = 4096
)

// isUKI reports whether a file is an EFI program with a kernel and its command line (systemd-stub(7)). Package debug/pe would link that of debugging
// symbols, too.
func isUKI(path string) bool {
	head, err := headOf(path, peHead)
	if err != nil || !bytes.HasPrefix(head, []byte("MZ")) || len(head) < peOffsetAt+4 {
		return false
	}
	at := int64(binary.LittleEndian.Uint32(head[peOffsetAt:]))
	if at+peHeaders > int64(len(head)) || !bytes.HasPrefix(head[at:], []byte("PE\x00\x00")) {
		return false
	}
	sections := int(binary.LittleEndian.Uint16(head[at+peSections:]))
	table := head[min(int64(len(head)), at+peHeaders+int64(binary.LittleEndian.Uint16(head[at+peOptionalSize:]))):]
	has := map[string]bool{}
	for ; sections > 0 && len(table) >= peEntry; sections, table = sections-1, table[peEntry:] {
		has[string(bytes.TrimRight(table[:peName], "\x00"))] = true
	}
	return has[".linux"] && has[".cmdline"]
}

// magics are the first bytes of what can be booted: qcow2, cpio (newc), and
// the compressions that Debian's kernel unpacks.
var magics = map[string]string{
	"QFI\xfb": kindDisk, "070701": kindInitrd,
	"\x1f\x8b": kindInitrd, "\x28\xb5\x2f\xfd": kindInitrd, "\xfd7zXZ\x00": kindInitrd, "\x02\x21\x4c\x18": kindInitrd,
}

func imageKind(path string) (string, error) {
	head, err := headOf(path, 8)
	if err != nil && !errors.Is(err, syscall.EISDIR) {
		return "", fmt.Errorf("image: %w", err)
	}
	if isUKI(path) {
		return kindUKI, nil
	}
	for magic, kind := range magics {
		if bytes.HasPrefix(head, []byte(magic)) {
			return kind, nil
		}
	}
	return "", fmt.Errorf("%w: image %s is neither a qcow2 disk nor an initramfs nor a unified kernel image", provider.ErrInvalidArgument, path)
}

// headOf returns the first n bytes of a file, or all of a shorter one.
func headOf(path string, n int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, n))
}

// makeDisks makes the disks that the guest may write on.
func (p *Provider) makeDisks(ctx context.Context, r *record) error {
	if r.Boot.Firmware != "" {
		if err := p.makeVariables(r); err != nil {
			return err
		}
	}
	if r.Boot.Disk != "" {
		if err := p.makeOverlay(ctx, r); err != nil {
			return err
		}
	}
	if r.Scratch == 0 {
		return nil
	}
	return makeScratch(ctx, p.store.file(r.ID, scratchName), r.Scratch)
}

// makeVariables copies the firmware's empty variable store.
func (p *Provider) makeVariables(r *record) error {
	vars := strings.Replace(filepath.Base(r.Boot.Firmware), "CODE", "VARS", 1)
	data, err := os.ReadFile(filepath.Join(filepath.Dir(r.Boot.Firmware), vars))
	if err != nil {
		return fmt.Errorf("UEFI variable store: %w; install Debian's ovmf, or set -qemu-firmware", err)
	}
	return os.WriteFile(p.store.file(r.ID, varsName), data, 0o600)
}

func (p *Provider) makeOverlay(ctx context.Context, r *record) error {
	base, err := filepath.Abs(r.Boot.Disk)
	if err != nil {
		return err
	}
	return run(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, p.store.file(r.ID, overlayName))
}

// makeScratch makes an ext4 on a sparse file. The file is known to read as
// zeros, so neither mke2fs nor the guest's kernel need to write inode tables
// and journal: 10 ms, and 4 MiB of disk for 10 GiB.
func makeScratch(ctx context.Context, path string, gib int64) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(gib << 30); err != nil {
		return err
	}
	format := func(option string) error {
		return run(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-L", "scratch", "-m", "0", "-E", option, path)
	}
	err = format("assume_storage_prezeroed=1")
	if errors.Is(err, errToolFailed) {
		// e2fsprogs before 1.47 have no such option.
		err = format("nodiscard,lazy_itable_init=1,lazy_journal_init=1")
	}
	return err
}

var errToolFailed = errors.New("failed")

// run runs a tool. The last argument is the file that it is about.
func run(ctx context.Context, name string, args ...string) error {
	return runWith(ctx, nil, name, args...)
}

// runWith is run with an environment; nil is that of this process.
func runWith(ctx context.Context, env []string, name string, args ...string) error {
	path, err := lookTool(name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.WaitDelay = env, time.Second // a tool that was ended may leave others that hold its output
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case strings.Contains(string(out), "No space left on device"):
		return fmt.Errorf("%w: %s %s: %s", syscall.ENOSPC, name, args[len(args)-1], bytes.TrimSpace(out))
	}
	return fmt.Errorf("%s %s %w: %w: %s", name, args[len(args)-1], errToolFailed, err, bytes.TrimSpace(out))
}

// debianPackages have the tools.
var debianPackages = map[string]string{"mke2fs": "e2fsprogs", "qemu-img": "qemu-utils",
	"swtpm": "swtpm", "swtpm_setup": "swtpm-tools", "swtpm_localca": "swtpm-tools"}

// lookTool also looks where only root's PATH leads.
func lookTool(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if err == nil {
			return path, nil
		}
		path, err = exec.LookPath(filepath.Join(dir, name))
	}
	if err != nil {
		err = fmt.Errorf("%w: %w; install it with `apt-get install %s`", provider.ErrNotFound, err, debianPackages[name])
	}
	return path, err
}
