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
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// Name is the provider's name on command lines.
const Name = "qemu"

func init() { provider.AddCloudProvider(Name, Manager()) }

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

// When instances are restored from a saved VM instead of booted.
const (
	TemplatesAuto   = "auto" // in emulation
	TemplatesAlways = "always"
	TemplatesNever  = "never"
)

const (
	systemImageDir = "/usr/share/outrigger/podvm"
	// maxCPUs is the limit of the q35 machine type of QEMU 7.2.
	maxCPUs = 288
	// minMemory is what the cloud kernel needs with a small initramfs, in MiB;
	// leastMemory counts in the one that there is.
	minMemory = 96
	// kernelMemory is what the cloud kernel has for itself when it unpacks the
	// initramfs, in MiB.
	kernelMemory = 48
)

// Config configures a provider; start from [DefaultConfig]. The tags are the
// flags, variables, defaults and bounds; see package provider/config.
type Config struct {
	Binary string `flag:"qemu-binary" env:"QEMU_BINARY" default:"qemu-system-x86_64" usage:"QEMU, a path or a name in PATH"`
	Accel  string `flag:"qemu-accel" env:"QEMU_ACCEL" default:"auto" choices:"auto,kvm,tcg" usage:"how guests run; auto is KVM where a guest really runs on it, else TCG"`

	Kernel string `flag:"qemu-kernel" env:"QEMU_KERNEL" usage:"kernel (PVH vmlinux or bzImage), booted directly, or a unified kernel image (podvm.efi), booted by UEFI; default podvm/vmlinux beside the executable, with -qemu-tpm podvm/podvm.efi"`
	Initrd string `flag:"qemu-initrd" env:"QEMU_INITRD" usage:"initramfs; default podvm/initrd.cpio beside the executable"`
	Disk   string `flag:"qemu-disk" env:"QEMU_DISK" usage:"qcow2 disk with UEFI boot, in place of kernel and initramfs"`
	// Firmware's variable store is the file of the same name with VARS for
	// CODE. The default is of Debian's package ovmf.
	Firmware string `flag:"qemu-firmware" env:"QEMU_FIRMWARE" default:"/usr/share/OVMF/OVMF_CODE_4M.fd" usage:"UEFI code for -qemu-disk, or for a unified kernel image"`
	ImageDir string `flag:"qemu-image-dir" env:"QEMU_IMAGE_DIR" usage:"folder of the images that pods may name; default that of the initramfs or disk"`
	Append   string `flag:"qemu-append" env:"QEMU_APPEND" usage:"more words for the kernel's command line"`
	TPM      string `flag:"qemu-tpm" env:"QEMU_TPM" default:"off" choices:"off,on,uefi" usage:"give each VM a TPM 2.0 (swtpm) and boot it by UEFI, which measures what it boots; uefi: those VMs whose image boots by UEFI"`

	// CPUs and Memory: the bounds are maxCPUs and minMemory.
	CPUs        int64 `flag:"qemu-cpus" env:"QEMU_CPUS" default:"1" min:"1" max:"288" usage:"virtual CPUs of a pod that asks for none"`
	Memory      int64 `flag:"qemu-memory" env:"QEMU_MEMORY" default:"512" unit:"MiB" min:"96" max:"16777216" usage:"memory of a pod that asks for none; a guest needs 48 MiB and three times its initramfs"`
	ScratchDisk int64 `flag:"qemu-scratch-disk" env:"QEMU_SCRATCH_DISK" default:"10" unit:"GiB" min:"0" max:"16384" usage:"size of the sparse disk for images, 0 for none"`

	// Templates: KVM saves and restores as well, but no machine that this was tested on has it.
	Templates   string `flag:"qemu-templates" env:"QEMU_TEMPLATES" default:"auto" choices:"auto,always,never" usage:"restore VMs from one that was saved when it had booted; auto is in emulation only"`
	TemplateDir string `flag:"qemu-template-dir" env:"QEMU_TEMPLATE_DIR" default:"/var/cache/outrigger/qemu" usage:"folder of the saved VMs; it may be emptied at any time"`

	StateDir string `flag:"qemu-state-dir" env:"QEMU_STATE_DIR" default:"/var/lib/outrigger/qemu" usage:"folder of the instances"`

	Bridge string `flag:"qemu-bridge" env:"QEMU_BRIDGE" default:"orvm0" usage:"name of the bridge to make for the VMs"`
	// Subnet and Subnet6: not both may be none.
	Subnet     Prefix `flag:"qemu-subnet" env:"QEMU_SUBNET" default:"192.168.127.0/24" usage:"IPv4 prefix of the VMs, or none"`
	Subnet6    Prefix `flag:"qemu-subnet6" env:"QEMU_SUBNET6" default:"fd6f:7574:7269::/64" usage:"IPv6 prefix of the VMs, or none"`
	MTU        int    `flag:"qemu-mtu" env:"QEMU_MTU" default:"0" unit:"bytes" usage:"MTU of the VMs' interfaces; 0 is that of the machine's way out"`
	Addressing string `flag:"qemu-addressing" env:"QEMU_ADDRESSING" default:"static" choices:"static,dhcp" usage:"how a guest gets its address: from the seed or by DHCP"`
	DNS        Addrs  `flag:"qemu-dns" env:"QEMU_DNS" usage:"name servers of the VMs, with commas; default those of this machine that a guest can reach"`

	ProbeTimeout time.Duration `flag:"qemu-probe-timeout" env:"QEMU_PROBE_TIMEOUT" default:"10s" usage:"how long the guest of the KVM probe may take, from 1s to 1h"`
}

// Manager reads the provider's configuration.
func Manager() *config.Manager[Config] {
	return config.New(Name, func(cfg Config) (provider.Provider, error) {
		p, err := New(cfg)
		if err != nil {
			return nil, err // not p: a nil *Provider is not a nil Provider
		}
		return p, nil
	})
}

// none is the value with which a user turns such a prefix off.
const none = "none"

// Prefix is a network, or none.
type Prefix struct{ netip.Prefix }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Prefix) UnmarshalText(text []byte) error {
	if string(text) == none {
		*p = Prefix{}
		return nil
	}
	return p.Prefix.UnmarshalText(text)
}

// Addrs are addresses with commas between them.
type Addrs []netip.Addr

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Addrs) UnmarshalText(text []byte) error {
	*a = nil
	for part := range strings.SplitSeq(string(text), ",") {
		addr, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*a = append(*a, addr)
	}
	return nil
}

// DefaultConfig returns the flags' defaults.
func DefaultConfig() Config { return config.Defaults[Config]() }

func (c Config) subnets() []netip.Prefix {
	var all []netip.Prefix
	for _, subnet := range []netip.Prefix{c.Subnet.Prefix, c.Subnet6.Prefix} {
		if subnet.IsValid() {
			all = append(all, subnet)
		}
	}
	return all
}

// validate reports everything that is wrong whatever the machine is like.
func (c Config) validate() error {
	errs := []error{
		config.Check(c),
		family("subnet", c.Subnet, true),
		family("subnet6", c.Subnet6, false),
		givenFile("kernel", c.Kernel),
		givenFile("initrd", c.Initrd),
		givenFile("disk", c.Disk),
	}
	if runtime.GOARCH != hostArch {
		errs = append(errs, fmt.Errorf("%w: the qemu provider runs on %s, not on %s", provider.ErrInvalidArgument, hostArch, runtime.GOARCH))
	}
	if c.Disk != "" && (c.Kernel != "" || c.Initrd != "") {
		errs = append(errs, bad("disk", "set it or -qemu-kernel and -qemu-initrd, not both"))
	}
	errs = append(errs, c.validateUKI())
	if c.Disk != "" && c.Templates == TemplatesAlways {
		errs = append(errs, bad("templates", "always: VMs that boot a disk (-qemu-disk) cannot be restored; set auto or never"))
	}
	if c.TemplateDir == "" && c.Templates != TemplatesNever {
		errs = append(errs, bad("template-dir", "it is empty; name a folder, or set -qemu-templates=never"))
	}
	if c.ProbeTimeout < time.Second || c.ProbeTimeout > time.Hour {
		errs = append(errs, bad("probe-timeout", "%s is not between 1s and 1h", c.ProbeTimeout))
	}
	if len(c.subnets()) == 0 {
		errs = append(errs, bad("subnet", "it and -qemu-subnet6 are both none"))
	}
	if c.Addressing == AddressingDHCP && !c.Subnet.IsValid() {
		errs = append(errs, bad("addressing", "dhcp needs -qemu-subnet, an IPv4 prefix"))
	}
	return errors.Join(errs...)
}

// validateUKI reports what does not fit a unified kernel image, whose command line and initramfs are inside, or a TPM,
// into which only UEFI measures.
func (c Config) validateUKI() error {
	uki, tpm := isUKI(c.Kernel), c.TPM == TPMOn
	if !uki && !tpm {
		return nil
	}
	var errs []error
	if c.Kernel != "" && !uki {
		errs = append(errs, bad("kernel", "%s is not a unified kernel image, which -qemu-tpm=on needs: name a podvm.efi (podvm-image build --format uki), or set -qemu-disk", c.Kernel))
	}
	if c.Initrd != "" {
		errs = append(errs, bad("initrd", "a unified kernel image has its own: leave it out"))
	}
	if c.Append != "" {
		errs = append(errs, bad("append", "the command line is inside of the unified kernel image or disk, and measured: set it with podvm-image build --cmdline"))
	}
	if c.Templates == TemplatesAlways {
		errs = append(errs, bad("templates", "always: VMs that boot by UEFI cannot be restored; set auto or never"))
	}
	return errors.Join(errs...)
}

// bad names a setting by its flag and its variable.
func bad(name, format string, args ...any) error {
	return config.Wrong[Config]("qemu-"+name, format, args...)
}

func family(name string, prefix Prefix, is4 bool) error {
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

// imageDirs are where the default image is looked for.
func imageDirs() []string {
	dirs := []string{systemImageDir}
	if exe, err := os.Executable(); err == nil {
		dirs = append([]string{filepath.Join(filepath.Dir(exe), "podvm")}, dirs...)
	}
	return dirs
}

// findUKI returns the default unified kernel image.
func findUKI() (string, error) {
	for _, dir := range imageDirs() {
		if path := filepath.Join(dir, "podvm.efi"); isUKI(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: -qemu-tpm=on, and no unified kernel image (podvm.efi) in %v; build one with podvm-image build --format uki and set -qemu-kernel, or set -qemu-disk",
		provider.ErrNotFound, imageDirs())
}

// findImage returns the default kernel and initramfs.
func findImage() (kernel, initrd string, err error) {
	dirs := imageDirs()
	for _, dir := range dirs {
		kernel, initrd = filepath.Join(dir, "vmlinux"), filepath.Join(dir, "initrd.cpio")
		if openable(kernel, os.O_RDONLY) == nil && openable(initrd, os.O_RDONLY) == nil {
			return kernel, initrd, nil
		}
	}
	return "", "", fmt.Errorf("%w: no pod VM image (vmlinux and initrd.cpio) in %v; install Outrigger again, or in a checkout run `make podvm`; or set -qemu-kernel and -qemu-initrd, or -qemu-disk",
		provider.ErrNotFound, dirs)
}

func openable(path string, flag int) error {
	file, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return err
	}
	return file.Close()
}

func (c Config) log() *slog.Logger { return slog.With("provider", Name) }

// hostArch is the only architecture of guests, a GOARCH name.
const hostArch = "amd64"
