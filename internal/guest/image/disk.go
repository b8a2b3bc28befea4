// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	definition "github.com/outrigger/outrigger/images/podvm"
)

// efiStub is in Debian's package systemd-boot-efi.
const efiStub = "usr/lib/systemd/boot/efi/linuxx64.efi.stub"

// efiBootPath is what firmware starts from a disk without boot entries (UEFI
// specification 2.10, 3.5.1.1).
const efiBootPath = "EFI/BOOT/BOOTX64.EFI"

// writeUKI packs kernel, initramfs and command line into one EFI program.
func (b *builder) writeUKI(ctx context.Context) (err error) {
	if !b.wantsDisk() && !b.wants(FormatUKI) {
		return nil
	}
	if b.uki, err = b.unifiedKernel(ctx); err != nil || !b.wants(FormatUKI) {
		return err
	}
	return b.result("podvm.efi", b.uki)
}

// writeDisk puts the EFI program on an EFI system partition.
func (b *builder) writeDisk(ctx context.Context) error {
	if !b.wantsDisk() {
		return nil
	}
	esp, err := buildESP(efiBootPath, b.uki, b.mtime, partitionStart)
	if err != nil {
		return err
	}
	disk := buildDisk(esp)
	if b.wants(FormatRaw) {
		if err := b.result("podvm.raw", disk); err != nil {
			return err
		}
	}
	if b.wants(FormatQcow2) {
		qcow2, err := b.convert(ctx, disk, "qcow2") // which leaves out what is zero
		if err == nil {
			err = b.result("podvm.qcow2", qcow2)
		}
		if err != nil {
			return err
		}
	}
	return b.cloudFormats(ctx, disk)
}

func (b *builder) unifiedKernel(ctx context.Context) ([]byte, error) {
	pkg, err := b.cache.get(ctx, bootStub)
	if err != nil {
		return nil, err
	}
	b.summary.Packages = append(b.summary.Packages, pkg)
	stub, err := os.ReadFile(filepath.Join(pkg.root, efiStub))
	if err != nil {
		return nil, fmt.Errorf("EFI stub: %w", err)
	}
	osrel, err := definition.Etc.ReadFile("os-release")
	if err != nil {
		return nil, err
	}
	initrd, err := b.compressedInitrd()
	if err != nil {
		return nil, err
	}
	b.summary.Cmdline = b.Cmdline
	uki, err := buildUKI(stub, []ukiSection{
		{".osrel", osrel},
		{".cmdline", []byte(b.Cmdline)},
		{".linux", b.kernel.bzImage},
		{".initrd", initrd},
	})
	if err != nil || b.SignKey == "" {
		return uki, err
	}
	return signEFI(uki, b.SignKey, b.SignCert)
}

// compressedInitrd trades start time for a smaller disk: it is uploaded and
// copied often. zstd unpacks several times faster than gzip.
func (b *builder) compressedInitrd() ([]byte, error) {
	var out bytes.Buffer
	z, err := b.initrdCompressor(&out)
	if err != nil {
		return nil, err
	}
	if err := writeCPIO(z, b.tree, b.mtime); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (b *builder) initrdCompressor(w io.Writer) (io.WriteCloser, error) {
	switch {
	case b.kernel.has("CONFIG_RD_ZSTD"):
		// More than one worker would make the block bounds depend on timing.
		return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	case b.kernel.has("CONFIG_RD_GZIP"):
		return gzip.NewWriterLevel(w, gzip.BestCompression)
	}
	return nil, fmt.Errorf("kernel %s unpacks neither a zstd nor a gzip initramfs", b.kernel.version)
}
