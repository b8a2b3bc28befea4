// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/outrigger/outrigger/internal/kvm"
	"github.com/outrigger/outrigger/provider"
)

// host is what the daemon's machine can run.
type host struct {
	// arch is a GOARCH name.
	arch string
	// domainType is libvirt's: kvm, qemu or test.
	domainType string
}

// arches are libvirt's names of architectures, by GOARCH names.
var arches = map[string]string{"amd64": "x86_64", "arm64": "aarch64", "s390x": "s390x"}

func goArch(name string) string {
	for arch, libvirtName := range arches {
		if name == libvirtName {
			return arch
		}
	}
	return ""
}

func (p *Provider) machine(ctx context.Context) (*host, error) {
	p.hostMu.Lock()
	known := p.host
	p.hostMu.Unlock()
	if known != nil {
		return known, nil
	}
	text, err := p.hv.capabilities(ctx)
	if err != nil {
		return nil, err
	}
	h, err := p.judge(text)
	if err != nil {
		return nil, err
	}
	p.hostMu.Lock()
	defer p.hostMu.Unlock()
	if p.host == nil {
		p.host = h
		p.tellType(h)
	}
	return p.host, nil
}

func (p *Provider) tellType(h *host) {
	if p.cfg.DomainType == typeAuto && h.domainType == typeQEMU {
		why := "the daemon offers no KVM"
		if p.target.local() {
			if here := kvm.Impossible("/"); here != "" {
				why = here
			}
		}
		logger().Warn("guests run in emulation, which is slower: KVM is of no use here", "why", why)
	}
}

// judge reads the daemon's capabilities.
func (p *Provider) judge(text string) (*host, error) {
	var caps libvirtxml.Caps
	if err := caps.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("capabilities of %s: %w", p.target, err)
	}
	if p.target.testDriver() {
		return &host{arch: "amd64", domainType: "test"}, nil
	}
	machine := ""
	if caps.Host.CPU != nil {
		machine = caps.Host.CPU.Arch
	}
	arch := goArch(machine)
	if arch == "" {
		return nil, fmt.Errorf("%w: %s is a machine of architecture %q; want x86_64, aarch64 or s390x", provider.ErrInvalidArgument, p.target, machine)
	}
	types := domainTypes(&caps, arches[arch])
	wanted := p.wantedType(types)
	if !slices.Contains(types, wanted) {
		return nil, fmt.Errorf("%w: -libvirt-domain-type (LIBVIRT_DOMAIN_TYPE): %s offers %v for %s, not %s; is QEMU installed there?",
			provider.ErrInvalidArgument, p.target, types, arches[arch], wanted)
	}
	return &host{arch: arch, domainType: wanted}, nil
}

// wantedType believes a daemon on another machine, of which nothing more is
// known.
func (p *Provider) wantedType(types []string) string {
	switch {
	case p.cfg.DomainType != typeAuto:
		return p.cfg.DomainType
	case slices.Contains(types, typeKVM) && (!p.target.local() || kvm.Impossible("/") == ""):
		return typeKVM
	}
	return typeQEMU
}

func domainTypes(caps *libvirtxml.Caps, arch string) []string {
	var types []string
	for _, guest := range caps.Guests {
		if guest.Arch.Name != arch || guest.OSType != "hvm" {
			continue
		}
		for _, domain := range guest.Arch.Domains {
			types = append(types, domain.Type)
		}
	}
	return types
}
