// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
