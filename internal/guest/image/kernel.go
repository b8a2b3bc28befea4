// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// kernel is one unpacked kernel package.
type kernel struct {
	version string
	root    string
	bzImage []byte
	config  []byte
}

func (b *builder) loadKernel(ctx context.Context) error {
	var pkg *debPackage
	var err error
	if b.KernelDeb != "" {
		pkg, err = b.cache.unpack(ctx, "linux-image", b.KernelDeb)
	} else {
		pkg, err = b.cache.get(ctx, b.kernelName)
	}
	if err != nil {
		return err
	}
	b.kernel, err = openKernel(pkg.root)
	if err != nil {
		return fmt.Errorf("%s: %w", pkg.File, err)
	}
	b.summary.Packages = append(b.summary.Packages, pkg)
	b.summary.KernelVersion = b.kernel.version
	b.Log("kernel %s", b.kernel.version)
	return nil
}

// openKernel reads a tree that holds exactly one kernel.
func openKernel(root string) (*kernel, error) {
	images, _ := filepath.Glob(filepath.Join(root, "boot/vmlinuz-*"))
	if len(images) != 1 {
		return nil, fmt.Errorf("the package holds %d kernels under /boot, want one (an image package, not a metapackage)", len(images))
	}
	k := &kernel{root: root, version: strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")}
	var err error
	if k.bzImage, err = os.ReadFile(images[0]); err != nil {
		return nil, err
	}
	if k.config, err = os.ReadFile(filepath.Join(root, "boot/config-"+k.version)); err != nil {
		return nil, err
	}
	return k, nil
}

// has reports whether a feature is built in, such as CONFIG_RD_ZSTD.
func (k *kernel) has(option string) bool {
	return bytes.Contains(k.config, []byte("\n"+option+"=y\n"))
}

// hasTSM reports whether the kernel has configfs-tsm, built in or as a module.
func (k *kernel) hasTSM() bool {
	return k.has("CONFIG_TSM_REPORTS") || bytes.Contains(k.config, []byte("\nCONFIG_TSM_REPORTS=m\n"))
}

// Offsets in the setup header of a bzImage
// (Documentation/arch/x86/boot.rst, protocol 2.08 and later).
const (
	bootSetupSects    = 0x1f1
	bootMagic         = 0x202
	bootVersion       = 0x206
	bootPayloadOffset = 0x248
	bootPayloadLength = 0x24c
	bootHeaderEnd     = 0x250
	sectorSize        = 512
)

// extractVMLinux takes the ELF kernel out of a bzImage. QEMU enters the ELF by
// its PVH note, which skips the 16-bit start and the unpacking in the guest.
func extractVMLinux(bzImage []byte) ([]byte, error) {
	payload, err := bzImagePayload(bzImage)
	if err != nil {
		return nil, err
	}
	kernel, err := decompressKernel(payload)
	if err != nil {
		return nil, fmt.Errorf("unpack the kernel in the bzImage: %w", err)
	}
	if _, err := elf.NewFile(bytes.NewReader(kernel)); err != nil {
		return nil, fmt.Errorf("the bzImage holds no ELF kernel: %w", err)
	}
	return kernel, nil
}

func bzImagePayload(b []byte) ([]byte, error) {
	if len(b) < bootHeaderEnd || string(b[bootMagic:bootMagic+4]) != "HdrS" {
		return nil, errors.New("not a bzImage: no HdrS magic")
	}
	if v := binary.LittleEndian.Uint16(b[bootVersion:]); v < 0x208 {
		return nil, fmt.Errorf("bzImage with boot protocol %#x, need 0x208 or later", v)
	}
	sects := int(b[bootSetupSects])
	if sects == 0 {
		sects = 4
	}
	start := (sects+1)*sectorSize + int(binary.LittleEndian.Uint32(b[bootPayloadOffset:]))
	end := start + int(binary.LittleEndian.Uint32(b[bootPayloadLength:]))
	if start >= end || end > len(b) {
		return nil, fmt.Errorf("bzImage payload [%d,%d) is outside the file of %d bytes", start, end, len(b))
	}
	return b[start:end], nil
}

// decompressKernel knows the compressions by their magic. The last four bytes
// of the payload are the unpacked size for every format but gzip, which ends
// with the same field of its own.
func decompressKernel(p []byte) ([]byte, error) {
	if len(p) < 8 {
		return nil, errors.New("payload is too short")
	}
	switch {
	case bytes.HasPrefix(p, []byte{0x02, 0x21, 0x4c, 0x18}):
		return unpackLZ4(p)
	case bytes.HasPrefix(p, []byte{0x1f, 0x8b}):
		return unpackGzip(p)
	case bytes.HasPrefix(p, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return unpackXZ(p[:len(p)-4])
	case bytes.HasPrefix(p, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return unpackZstd(p[:len(p)-4])
	case bytes.HasPrefix(p, []byte(elf.ELFMAG)):
		return p, nil
	}
	return nil, fmt.Errorf("unknown compression, magic % x", p[:6])
}

func unpackGzip(p []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(p))
	if err != nil {
		return nil, err
	}
	z.Multistream(false)
	return io.ReadAll(z)
}

// unpackLZ4 reads the legacy frames that the size follows.
func unpackLZ4(p []byte) ([]byte, error) {
	end := len(p) - 4
	out, err := io.ReadAll(lz4.NewReader(bytes.NewReader(p[:end])))
	if size := binary.LittleEndian.Uint32(p[end:]); err == nil && len(out) != int(size) {
		err = fmt.Errorf("%d bytes unpacked, header says %d", len(out), size)
	}
	if err != nil {
		return nil, fmt.Errorf("lz4: %w", err)
	}
	return out, nil
}

func unpackZstd(p []byte) ([]byte, error) {
	z, err := zstd.NewReader(nil)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return z.DecodeAll(p, nil)
}

// unpackXZ runs a program: no library here reads xz.
func unpackXZ(p []byte) ([]byte, error) {
	cmd := exec.Command("xz", "-dc")
	cmd.Stdin = bytes.NewReader(p)
	return output(cmd, "xz-utils")
}
