// SPDX-License-Identifier: Apache-2.0

package qemu

import (
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
	var scratchErr, diskErr error
	if p.cfg.ScratchDisk > 0 {
		_, scratchErr = lookTool("mke2fs")
	}
	if p.cfg.Disk != "" {
		_, diskErr = lookTool("qemu-img")
	}
	return errors.Join(scratchErr, diskErr)
}

func (p *Provider) verifyAccel() error {
	if p.cfg.Accel != AccelKVM {
		return nil
	}
	if err := openable(kvmDevice, os.O_RDWR); err != nil {
		return classify(fmt.Errorf("-qemu-accel=kvm: %w", err))
	}
	return nil
}

func (p *Provider) verifyNetwork() error {
	id := fmt.Sprintf("verify-%d", os.Getpid())
	_, err := p.net.AttachTap(id)
	err = errors.Join(err, p.net.Detach(id))
	p.store.tidy()
	return err
}
