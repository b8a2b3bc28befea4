// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/outrigger/outrigger/provider"
)

// ConfigVerifier reports everything that keeps instances from being made. It
// attaches a tap and removes it again: nothing less shows that the network can
// be had.
func (p *Provider) ConfigVerifier() error {
	_, binaryErr := p.binary()
	_, bootErr := p.configuredBoot()
	_, _, sizeErr := p.size(provider.InstanceTypeSpec{})
	return errors.Join(binaryErr, classify(bootErr), sizeErr, p.verifyTools(), p.verifyAccel(), classify(p.verifyNetwork()))
}

func (p *Provider) verifyTools() error {
	need := map[string]string{}
	if p.cfg.ScratchDisk > 0 {
		need["mke2fs"] = "e2fsprogs"
	}
	if p.cfg.Disk != "" {
		need["qemu-img"] = "qemu-utils"
	}
	var errs []error
	for tool, debianPackage := range need {
		if _, err := lookTool(tool); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w; install it with `apt-get install %s`", provider.ErrNotFound, err, debianPackage))
		}
	}
	return errors.Join(errs...)
}

func (p *Provider) verifyAccel() error {
	if p.cfg.Accel != AccelKVM {
		return nil
	}
	file, err := os.OpenFile(kvmDevice, os.O_RDWR, 0)
	if err != nil {
		return classify(fmt.Errorf("-qemu-accel=kvm: %w", err))
	}
	return file.Close()
}

func (p *Provider) verifyNetwork() error {
	id := fmt.Sprintf("verify-%d", os.Getpid())
	_, err := p.net.AttachTap(id)
	err = errors.Join(err, p.net.Detach(id))
	p.store.tidy()
	return err
}

// Accelerator returns kvm or tcg: what instances made now run on. It probes
// when nobody has yet.
func (p *Provider) Accelerator(ctx context.Context) (string, error) { return p.accelerator(ctx) }
