// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

func init() { provider.AddCloudProvider(Name, &Manager{}) }

const flagPrefix = "qemu-"

// Manager reads the provider's configuration from flags and environment. Each
// flag has a variable: -qemu-state-dir is QEMU_STATE_DIR. A flag wins over its
// variable; an empty variable counts as unset.
type Manager struct {
	cfg   Config
	flags *flag.FlagSet
	// wrong are the variables that did not parse.
	wrong []error
}

// ParseCmd registers the flags.
func (m *Manager) ParseCmd(flags *flag.FlagSet) {
	m.cfg, m.flags, m.wrong = DefaultConfig(), flags, nil
	c := &m.cfg
	flags.StringVar(&c.Binary, "qemu-binary", c.Binary, "QEMU, a path or a name in PATH")
	flags.StringVar(&c.Accel, "qemu-accel", c.Accel, "auto, kvm or tcg; auto is KVM where a guest really runs on it")
	flags.StringVar(&c.Kernel, "qemu-kernel", "", "kernel (vmlinux or bzImage); default podvm/vmlinux beside the executable")
	flags.StringVar(&c.Initrd, "qemu-initrd", "", "initramfs; default podvm/initrd.cpio beside the executable")
	flags.StringVar(&c.Disk, "qemu-disk", "", "qcow2 disk with UEFI boot, in place of kernel and initramfs")
	flags.StringVar(&c.Firmware, "qemu-firmware", c.Firmware, "UEFI code for -qemu-disk")
	flags.StringVar(&c.ImageDir, "qemu-image-dir", "", "folder of the images that pods may name; default that of the initramfs or disk")
	flags.StringVar(&c.Append, "qemu-append", "", "more words for the kernel's command line")
	flags.Int64Var(&c.CPUs, "qemu-cpus", c.CPUs, "virtual CPUs of a pod that asks for none")
	flags.Int64Var(&c.Memory, "qemu-memory", c.Memory, "memory in MiB of a pod that asks for none")
	flags.Int64Var(&c.ScratchDisk, "qemu-scratch-disk", c.ScratchDisk, "size in GiB of the sparse disk for images, 0 for none")
	flags.StringVar(&c.StateDir, "qemu-state-dir", c.StateDir, "folder of the instances")
	flags.StringVar(&c.Bridge, "qemu-bridge", c.Bridge, "name of the bridge to make for the VMs")
	flags.Var((*prefixValue)(&c.Subnet), "qemu-subnet", "IPv4 prefix of the VMs, or none")
	flags.Var((*prefixValue)(&c.Subnet6), "qemu-subnet6", "IPv6 prefix of the VMs, or none")
	flags.IntVar(&c.MTU, "qemu-mtu", 0, "MTU of the VMs' interfaces; 0 is that of the machine's way out")
	flags.StringVar(&c.Addressing, "qemu-addressing", c.Addressing, "static or dhcp")
	flags.Var((*addrsValue)(&c.DNS), "qemu-dns", "name servers of the VMs, with commas; default this machine's")
	flags.DurationVar(&c.ProbeTimeout, "qemu-probe-timeout", c.ProbeTimeout, "how long the guest of the KVM probe may take")
}

// LoadEnv fills what no flag has set.
func (m *Manager) LoadEnv() {
	if m.flags == nil {
		m.ParseCmd(flag.NewFlagSet(Name, flag.ContinueOnError))
	}
	given := map[string]bool{}
	m.flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	m.flags.VisitAll(func(f *flag.Flag) {
		value := os.Getenv(envName(f.Name))
		if !strings.HasPrefix(f.Name, flagPrefix) || given[f.Name] || value == "" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			m.wrong = append(m.wrong, fmt.Errorf("%w: %s=%q (-%s): %w", provider.ErrInvalidArgument, envName(f.Name), value, f.Name, err))
		}
	})
}

// NewProvider checks the configuration.
func (m *Manager) NewProvider() (provider.Provider, error) {
	if m.flags == nil {
		m.cfg = DefaultConfig()
	}
	if len(m.wrong) > 0 {
		return nil, errors.Join(append(m.wrong, m.cfg.validate())...)
	}
	p, err := New(m.cfg)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func envName(flagName string) string {
	return strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// none is how a user says that there shall be no such prefix.
const none = "none"

type prefixValue netip.Prefix

func (v *prefixValue) String() string {
	if p := netip.Prefix(*v); p.IsValid() {
		return p.String()
	}
	return none
}

func (v *prefixValue) Set(text string) error {
	if text == none {
		*v = prefixValue{}
		return nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err == nil {
		*v = prefixValue(prefix)
	}
	return err
}

type addrsValue []netip.Addr

func (v *addrsValue) String() string {
	var texts []string
	for _, addr := range *v {
		texts = append(texts, addr.String())
	}
	return strings.Join(texts, ",")
}

func (v *addrsValue) Set(text string) error {
	var addrs []netip.Addr
	for part := range strings.SplitSeq(text, ",") {
		addr, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		addrs = append(addrs, addr)
	}
	*v = addrs
	return nil
}
