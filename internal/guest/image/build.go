// SPDX-License-Identifier: Apache-2.0

// Package image builds the pod VM's image: Debian's cloud kernel, an initramfs
// that holds the whole guest, and a UEFI disk made of both. Equal inputs give
// byte-equal images; nothing is mounted and no root is needed.
package image

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	definition "github.com/outrigger/outrigger/images/podvm"
	"github.com/outrigger/outrigger/internal/nocloud"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/sbom"
)

// Formats that Build can make.
const (
	FormatInitramfs = "initramfs" // vmlinux, vmlinuz, initrd.cpio
	FormatDirect    = "direct"    // vmlinux, initrd.cpio: what QEMU boots by itself
	FormatQcow2     = "qcow2"     // podvm.qcow2, boots by UEFI
	FormatRaw       = "raw"       // podvm.raw, the same disk
	FormatVHD       = "vhd"       // podvm.vhd, the same for Azure
	FormatGCP       = "gcp"       // podvm.tar.gz, the same for Google Cloud
	FormatOVA       = "ova"       // podvm.ova, the same for vSphere
	FormatDocker    = "docker"    // podvm.tar, an image for `docker load`
	FormatUKI       = "uki"       // podvm.efi, the EFI program that is on the disk
)

// Formats lists what Options.Formats may hold.
func Formats() []string {
	return []string{FormatInitramfs, FormatDirect, FormatQcow2, FormatRaw, FormatVHD, FormatGCP, FormatOVA, FormatDocker, FormatUKI}
}

// DefaultCmdline is the kernel command line in the disk image. panic=-1 makes
// a failed guest end instead of hang; no_timer_check is for emulation on a busy
// machine, whose timer is late.
const DefaultCmdline = "console=ttyS0 quiet panic=-1 cryptomgr.notests no_timer_check"

// defaultEpoch is the time of every file in the image unless
// SOURCE_DATE_EPOCH is set: 2025-01-01.
const defaultEpoch = 1735689600

// Options say what to build from what.
type Options struct {
	// Output is the folder of the results; made if absent.
	Output string
	// Cache is the folder for packages; made if absent.
	Cache string
	// Formats is a subset of Formats().
	Formats []string
	// KernelPackage is a Debian package; empty takes the newest cloud kernel, see kernelMetas.
	KernelPackage string
	// KernelDeb is a package file, used instead of KernelPackage.
	KernelDeb string
	// Binaries is a folder with the guest's programs; empty builds them.
	Binaries string
	// Module is the checkout to build them from; empty is the working folder.
	Module string
	// Date is that of every file in the image; zero is SOURCE_DATE_EPOCH, or
	// else the first day of 2025.
	Date time.Time
	// Version is the version of the guest's programs that Build builds; empty
	// means "devel".
	Version string
	// Cmdline is the kernel command line in the EFI program and the disk.
	Cmdline string
	// SignKey and SignCert are PEM files: the key and its certificate that sign the EFI program for Secure
	// Boot. Both or none are empty.
	SignKey, SignCert string
	// Confidential adds what enforces the policies of pods and what attests, and prefers a kernel that can by the processor.
	Confidential bool
	// Guest is GuestOutrigger or GuestKata; empty is the former.
	Guest string
	// GuestBinaries is a folder with the programs of GuestKata: kata-agent and pause_bundle, and any of
	// attestation-agent, confidential-data-hub, api-server-rest, default-policy.rego and lib64.
	GuestBinaries string
	// Debug adds busybox and a shell on the console.
	Debug bool
	// Log gets one line for each step.
	Log func(format string, args ...any)
}

// Summary says what was built.
type Summary struct {
	KernelVersion string        `json:"kernelVersion"`
	Packages      []*debPackage `json:"packages"`
	Modules       int           `json:"modules"`
	Cmdline       string        `json:"cmdline,omitempty"`
	Files         []File        `json:"files"`
	// Capabilities are what the image can beside running pods.
	Capabilities []string `json:"capabilities,omitempty"`
	// Guest is whose agent is in it.
	Guest string `json:"guest"`
	// GuestBinaries are the programs of Options.GuestBinaries that are in the image.
	GuestBinaries []File `json:"guestBinaries,omitempty"`
	// Program is the executable that holds the guest's programs, when Build
	// has built it.
	Program []byte `json:"-"`
}

// File is one result.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// builder carries the state from step to step.
type builder struct {
	Options
	cache   *packageCache
	mtime   time.Time
	work    string // scratch folder, removed at the end
	gcpUnit int64  // gcpDiskUnit, less in tests
	// kernelName is the kernel's package, if it is of Debian's archive.
	kernelName string
	packages   []string // of debianPrograms and their libraries
	kernel     *kernel
	tree       *rootfs
	uki        []byte // what a disk boots
	summary    Summary
}

// Build makes the image in opts.Output. Each result appears under its name
// only when it is complete.
func Build(ctx context.Context, opts Options) (*Summary, error) {
	b, err := newBuilder(opts)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.work)
	steps := []struct {
		name string
		run  func(context.Context) error
	}{
		{"packages", b.findPackages},
		{"kernel", b.loadKernel},
		{"programs", b.loadBinaries},
		{"root file system", b.addSkeleton},
		{"root file system", b.addModules},
		{"root file system", b.addDebian},
		{"root file system", b.addPrograms},
		{"root file system", b.addKata},
		{"root file system", b.addDebug},
		{"kernel and initramfs", b.writeInitramfs},
		{"EFI program", b.writeUKI},
		{"disk", b.writeDisk},
		{"container image", b.writeContainer},
		{"manifest", b.writeManifest},
	}
	for _, s := range steps {
		if err := s.run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return &b.summary, nil
}

func newBuilder(opts Options) (*builder, error) {
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	for _, f := range opts.Formats {
		if !slices.Contains(Formats(), f) {
			return nil, program.Usagef("--format %q: want one of %s", f, strings.Join(Formats(), ", "))
		}
	}
	if err := opts.checkGuest(); err != nil {
		return nil, err
	}
	if len(opts.Formats) == 0 {
		return nil, errors.New("no format to build")
	}
	for _, dir := range []string{opts.Output, opts.Cache} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	mtime := opts.Date
	if mtime.IsZero() {
		var err error
		if mtime, err = sbom.SourceDate(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), strconv.Itoa(defaultEpoch))); err != nil {
			return nil, err
		}
	}
	lists, err := filepath.Abs(filepath.Join(opts.Cache, "pkgcache.bin"))
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "podvm-image-")
	if err != nil {
		return nil, err
	}
	return &builder{
		Options: opts,
		cache:   &packageCache{dir: opts.Cache, log: opts.Log, lists: "Dir::Cache::pkgcache=" + lists},
		mtime:   mtime,
		work:    work,
		gcpUnit: gcpDiskUnit,
		tree:    newRootfs(),
		summary: Summary{Guest: cmp.Or(opts.Guest, GuestOutrigger)},
	}, nil
}

func (b *builder) wants(format string) bool { return slices.Contains(b.Formats, format) }

func (b *builder) wantsDisk() bool {
	return slices.ContainsFunc(b.Formats, func(format string) bool {
		return !slices.Contains([]string{FormatInitramfs, FormatDirect, FormatDocker, FormatUKI}, format)
	})
}

// caBundle is where ca-certificates puts all trusted roots in one file.
const caBundle = "/etc/ssl/certs/ca-certificates.crt"

func (b *builder) addSkeleton(context.Context) error {
	for _, d := range []string{"proc", "sys", "dev", "run", "root", "mnt", "media/cidata", "var/lib", "etc/ssl/certs", "usr/sbin"} {
		b.tree.mkdir(d)
	}
	b.tree.mkdirMode("tmp", 0o1777)
	// Without a console node the kernel starts /init with no output at all.
	b.tree.charDevice("dev/console", 0o600, 5, 1)
	b.tree.symlink("var/run", "../run")
	b.tree.symlink("etc/mtab", "../proc/self/mounts")
	b.tree.file("etc/resolv.conf", 0o644, nil)
	b.tree.file(nocloud.TemplateMark, 0o444, nil)
	list, err := definition.Etc.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range list {
		data, err := definition.Etc.ReadFile(e.Name())
		if err != nil {
			return err
		}
		b.tree.file("etc/"+e.Name(), 0o644, data)
	}
	if err := b.tree.copyIn("etc/ssl/certs/ca-certificates.crt", caBundle, 0o644); err != nil {
		return fmt.Errorf("%w: run apt-get install ca-certificates", err)
	}
	return nil
}

func (b *builder) addModules(ctx context.Context) error {
	wanted, err := parseModuleList(definition.Modules)
	if err != nil {
		return err
	}
	if !b.attestsByTEE() {
		wanted = slices.DeleteFunc(wanted, func(w wantedModule) bool { return w.stage == stageTEE })
	}
	tree, err := openModules(ctx, b.kernel.root, b.kernel.version)
	if err != nil {
		return err
	}
	order, files, err := tree.loadOrder(wanted)
	if err != nil {
		return err
	}
	b.tree.file("modules.order", 0o644, []byte(order))
	b.tree.file("modules.alias", 0o644, []byte(tree.aliasLines(files, wanted)))
	for base, file := range files {
		data, err := file.content()
		if err != nil {
			return err
		}
		b.tree.file("modules/"+base, 0o644, data)
	}
	b.summary.Modules = len(files)
	return nil
}

// debianPrograms are Debian's programs of the image, by their names in their packages.
var debianPrograms = map[string]string{"usr/bin/" + runtime: "usr/bin/" + runtime, "usr/bin/mke2fs": "sbin/mke2fs", "usr/bin/e2fsck": "sbin/e2fsck",
	"usr/bin/resize2fs": "sbin/resize2fs"}

// unpacked returns the packages of debianPrograms and their libraries.
func (b *builder) unpacked(ctx context.Context) ([]*debPackage, error) {
	var pkgs []*debPackage
	for _, name := range b.packages {
		p, err := b.cache.get(ctx, name)
		if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
}

// addDebian puts in Debian's programs with the libraries that they need.
func (b *builder) addDebian(ctx context.Context) error {
	pkgs, err := b.unpacked(ctx)
	if err != nil {
		return err
	}
	for to, from := range debianPrograms {
		src, err := findIn(pkgs, from)
		if err != nil {
			return err
		}
		if err := b.tree.addProgram(to, src, pkgs); err != nil {
			return err
		}
	}
	for _, p := range pkgs {
		if p.used {
			b.summary.Packages = append(b.summary.Packages, p)
		}
	}
	return nil
}

// addDebug puts busybox in; podvm-init starts a shell when it finds /bin/sh.
func (b *builder) addDebug(ctx context.Context) error {
	if !b.Debug {
		return nil
	}
	p, err := b.cache.get(ctx, busybox)
	if err != nil {
		return err
	}
	src, err := findIn([]*debPackage{p}, "bin/busybox")
	if err != nil {
		return err
	}
	b.summary.Packages = append(b.summary.Packages, p)
	b.tree.symlink("bin/sh", "busybox")
	return b.tree.copyIn("bin/busybox", src, 0o755)
}

func (b *builder) writeInitramfs(context.Context) error {
	if !b.wants(FormatInitramfs) && !b.wants(FormatDirect) {
		return nil
	}
	vmlinux, err := extractVMLinux(b.kernel.bzImage)
	if err != nil {
		return err
	}
	if err := b.result("vmlinux", vmlinux); err != nil {
		return err
	}
	if b.wants(FormatInitramfs) {
		if err := b.result("vmlinuz", b.kernel.bzImage); err != nil {
			return err
		}
	}
	var initrd bytes.Buffer
	if err := writeCPIO(&initrd, b.tree, b.mtime); err != nil {
		return err
	}
	return b.result("initrd.cpio", initrd.Bytes())
}
