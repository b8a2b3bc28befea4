// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// Name is the provider's name on command lines.
const Name = "qemu"

// The ways to run a guest's instructions.
const (
	AccelAuto = "auto" // KVM where a guest really runs on it, else TCG
	AccelKVM  = "kvm"
	AccelTCG  = "tcg" // emulation
)

// The ways a guest gets its address.
const (
	AddressingStatic = "static" // written in the seed's network-config
	AddressingDHCP   = "dhcp"   // asked of the provider's DHCP server
)

const (
	defaultBinary   = "qemu-system-x86_64"
	defaultFirmware = "/usr/share/OVMF/OVMF_CODE_4M.fd" // Debian package ovmf
	defaultStateDir = "/var/lib/outrigger/qemu"
	systemImageDir  = "/usr/share/outrigger/podvm"
	defaultProbe    = 10 * time.Second
	// minMemory is what the cloud kernel needs with a small initramfs, in MiB.
	minMemory = 96
	// maxCPUs is the limit of the q35 machine type of QEMU 7.2.
	maxCPUs = 288
)

// Config configures a provider. Zero values are the defaults named below,
// except where 0 says something else.
type Config struct {
	// Binary is QEMU: a path, or a name looked up in PATH.
	// Default qemu-system-x86_64.
	Binary string
	// Accel is auto (default), kvm or tcg.
	Accel string
	// Kernel (PVH vmlinux or bzImage) and Initrd are booted directly. Default:
	// vmlinux and initrd.cpio in podvm/ beside the executable, then in
	// /usr/share/outrigger/podvm.
	Kernel, Initrd string
	// Disk, a qcow2 image with UEFI boot, is booted in place of the kernel.
	Disk string
	// Firmware is the UEFI code for Disk; the file of the same name with VARS
	// for CODE is its variable store. Default Debian's ovmf.
	Firmware string
	// ImageDir is where images that a pod names must lie; empty is the folder
	// of Initrd or Disk.
	ImageDir string
	// Append is added to the kernel's command line.
	Append string
	// CPUs and Memory (MiB) are for pods that ask for nothing. Default 1, 512.
	CPUs, Memory int64
	// ScratchDisk is the size of the scratch disk in GiB; it takes up only
	// what the guest writes. 0 is none.
	ScratchDisk int64
	// StateDir holds the instances. Default /var/lib/outrigger/qemu.
	StateDir string
	// Bridge is the name of the provider's bridge. Default orvm0.
	Bridge string
	// Subnet (IPv4) and Subnet6 are the VMs' addresses; the zero Prefix is
	// none, both zero are 192.168.127.0/24 and fd6f:7574:7269::/64.
	Subnet, Subnet6 netip.Prefix
	// MTU of the VMs' interfaces in bytes; 0 is that of the machine's way out.
	MTU int
	// Addressing is static (default) or dhcp.
	Addressing string
	// DNS are the guests' name servers. Default: those of this machine that a
	// guest can reach.
	DNS []netip.Addr
	// ProbeTimeout is how long the guest of the KVM probe may take. Default 10 s.
	ProbeTimeout time.Duration
}

// DefaultConfig is what the flags' defaults are.
func DefaultConfig() Config {
	return Config{ScratchDisk: 10}.withDefaults()
}

func (c Config) withDefaults() Config {
	setDefault(&c.Binary, defaultBinary)
	setDefault(&c.Accel, AccelAuto)
	setDefault(&c.Firmware, defaultFirmware)
	setDefault(&c.CPUs, 1)
	setDefault(&c.Memory, 512)
	setDefault(&c.StateDir, defaultStateDir)
	setDefault(&c.Bridge, "orvm0")
	setDefault(&c.Addressing, AddressingStatic)
	setDefault(&c.ProbeTimeout, defaultProbe)
	if !c.Subnet.IsValid() && !c.Subnet6.IsValid() {
		c.Subnet = netip.MustParsePrefix("192.168.127.0/24")
		c.Subnet6 = netip.MustParsePrefix("fd6f:7574:7269::/64")
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) subnets() []netip.Prefix {
	var all []netip.Prefix
	for _, subnet := range []netip.Prefix{c.Subnet, c.Subnet6} {
		if subnet.IsValid() {
			all = append(all, subnet)
		}
	}
	return all
}

// validate reports everything that is wrong whatever the machine is like.
func (c Config) validate() error {
	errs := []error{
		oneOf("accel", c.Accel, AccelAuto, AccelKVM, AccelTCG),
		oneOf("addressing", c.Addressing, AddressingStatic, AddressingDHCP),
		within("cpus", c.CPUs, 1, maxCPUs),
		within("memory", c.Memory, minMemory, 1<<24),
		within("scratch-disk", c.ScratchDisk, 0, 1<<14),
		within("probe-timeout", int64(c.ProbeTimeout), int64(time.Second), int64(time.Hour)),
		family("subnet", c.Subnet, true),
		family("subnet6", c.Subnet6, false),
		givenFile("kernel", c.Kernel),
		givenFile("initrd", c.Initrd),
		givenFile("disk", c.Disk),
	}
	if c.Disk != "" && (c.Kernel != "" || c.Initrd != "") {
		errs = append(errs, bad("disk", "set it or -qemu-kernel and -qemu-initrd, not both"))
	}
	if c.Addressing == AddressingDHCP && !c.Subnet.IsValid() {
		errs = append(errs, bad("addressing", "dhcp needs -qemu-subnet, an IPv4 prefix"))
	}
	return errors.Join(errs...)
}

// bad names a setting by its flag and its variable.
func bad(name, format string, args ...any) error {
	flagName := flagPrefix + name
	return fmt.Errorf("%w: -%s (%s): %s", provider.ErrInvalidArgument, flagName, envName(flagName), fmt.Sprintf(format, args...))
}

func oneOf(name, value string, allowed ...string) error {
	for _, a := range allowed {
		if a == value {
			return nil
		}
	}
	return bad(name, "%q is none of %v", value, allowed)
}

func within(name string, value, low, high int64) error {
	if value < low || value > high {
		return bad(name, "%d is not between %d and %d", value, low, high)
	}
	return nil
}

func family(name string, prefix netip.Prefix, is4 bool) error {
	if prefix.IsValid() && prefix.Addr().Is4() != is4 {
		return bad(name, "%s is of the wrong IP family", prefix)
	}
	return nil
}

func givenFile(name, path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err != nil {
		return bad(name, "%v", err)
	} else if !info.Mode().IsRegular() {
		return bad(name, "%s is not a file", path)
	}
	return nil
}

// findImage answers the default kernel and initramfs.
func findImage() (kernel, initrd string, err error) {
	dirs := []string{systemImageDir}
	if exe, err := os.Executable(); err == nil {
		dirs = append([]string{filepath.Join(filepath.Dir(exe), "podvm")}, dirs...)
	}
	for _, dir := range dirs {
		kernel, initrd = filepath.Join(dir, "vmlinux"), filepath.Join(dir, "initrd.cpio")
		if readable(kernel) == nil && readable(initrd) == nil {
			return kernel, initrd, nil
		}
	}
	return "", "", fmt.Errorf("%w: no pod VM image (vmlinux and initrd.cpio) in %v; build it with `make podvm`, or set -qemu-kernel and -qemu-initrd, or -qemu-disk",
		provider.ErrNotFound, dirs)
}

func readable(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return file.Close()
}

func (c Config) log() *slog.Logger { return slog.With("provider", Name) }

// hostArch is the only architecture of guests, a GOARCH name.
const hostArch = "amd64"

func checkArch() error {
	if runtime.GOARCH != hostArch {
		return fmt.Errorf("%w: the qemu provider runs on %s, not on %s", provider.ErrInvalidArgument, hostArch, runtime.GOARCH)
	}
	return nil
}
