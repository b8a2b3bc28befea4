// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// verifyLimit bounds ConfigVerifier.
const verifyLimit = 30 * time.Second

// ConfigVerifier implements provider.Provider. It reports everything that is
// wrong, unless the daemon cannot be asked.
func (p *Provider) ConfigVerifier() error { return p.VerifyConfig(context.Background()) }

// VerifyConfig implements provider.ContextVerifier.
func (p *Provider) VerifyConfig(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	h, err := p.machine(ctx)
	if err != nil {
		return classify(fmt.Errorf("verify: %w", err))
	}
	pl := &plan{host: h}
	_, securityErr := p.security(h)
	errs := []error{
		securityErr,
		p.size(ctx, pl, provider.InstanceTypeSpec{}),
		p.verifyStorage(ctx, pl),
		p.verifyFiles(h),
	}
	for _, name := range p.networks() {
		_, err := p.activeNetwork(ctx, name)
		errs = append(errs, err)
	}
	for i, err := range errs {
		errs[i] = classify(err)
	}
	return errors.Join(errs...)
}

// seedRoom is what an instance's volumes take at the least.
const seedRoom = 1 << 20

func (p *Provider) verifyStorage(ctx context.Context, pl *plan) error {
	if err := p.bootFrom(ctx, pl, ""); err != nil {
		return err
	}
	if pl.pool.available < seedRoom {
		return fmt.Errorf("%w: %s: pool %s has %d bytes left", provider.ErrCapacity, poolTitle, pl.pool.name, pl.pool.available)
	}
	return nil
}

// daemonFile is a file that the daemon opens.
type daemonFile struct{ title, path string }

func (p *Provider) daemonFiles(h *host) []daemonFile {
	files := []daemonFile{
		{"-libvirt-kernel (LIBVIRT_KERNEL)", p.cfg.Kernel},
		{"-libvirt-initrd (LIBVIRT_INITRD)", p.cfg.Initrd},
	}
	if firmware := firmwareOf(h.arch, p.cfg.Firmware); p.cfg.Kernel == "" && path.IsAbs(firmware) {
		const title = "-firmware (LIBVIRT_EFI_FIRMWARE)"
		files = append(files, daemonFile{title, firmware}, daemonFile{title, variableStore(firmware)})
	}
	return slices.DeleteFunc(files, func(f daemonFile) bool { return f.path == "" })
}

// verifyFiles looks for them, where the daemon is on this machine.
func (p *Provider) verifyFiles(h *host) error {
	if !p.target.local() || p.target.testDriver() {
		return nil
	}
	var errs []error
	for _, file := range p.daemonFiles(h) {
		if _, err := os.Stat(file.path); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s: %w", provider.ErrNotFound, file.title, err))
		}
	}
	return errors.Join(errs...)
}

// blame names the setting of the file that the daemon could not start a domain
// with.
func (p *Provider) blame(h *host, err error) error {
	if err == nil {
		return nil
	}
	for _, file := range p.daemonFiles(h) {
		if strings.Contains(err.Error(), file.path) {
			return fmt.Errorf("%w: %s: %w", provider.ErrNotFound, file.title, err)
		}
	}
	return err
}
