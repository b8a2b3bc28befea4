// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"log/slog"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// Name is the provider's name on command lines.
const Name = "libvirt"

func init() { provider.AddCloudProvider(Name, NewManager()) }

// Config is the provider's configuration.
type Config struct {
	URI      string `flag:"uri" env:"LIBVIRT_URI" default:"qemu+ssh://root@192.168.122.1/system?no_verify=1" usage:"where the libvirt daemon is: qemu:///system, qemu+unix, qemu+ssh, qemu+tls or qemu+tcp"`
	Pool     string `flag:"pool-name" env:"LIBVIRT_POOL" default:"default" usage:"storage pool (dir, fs or netfs) of the base volume and of the instances' volumes"`
	Network  string `flag:"network-name" env:"LIBVIRT_NET" default:"default" usage:"network of the VMs"`
	Volume   string `flag:"vol-name" env:"LIBVIRT_VOL_NAME" default:"podvm-base.qcow2" usage:"base volume: the pod VM image, a volume of the pool"`
	DataDir  string `flag:"data-dir" default:"/var/lib/libvirt/images" usage:"accepted and not used: everything is in the storage pool"`
	Firmware string `flag:"firmware" env:"LIBVIRT_EFI_FIRMWARE" default:"/usr/share/OVMF/OVMF_CODE_4M.fd" usage:"UEFI code on the daemon's machine, efi to let the daemon choose, or bios; s390x has none"`

	CPUs     int64  `flag:"cpu" env:"LIBVIRT_CPU" default:"2" min:"1" max:"512" usage:"virtual CPUs of a pod that asks for none"`
	Memory   int64  `flag:"memory" env:"LIBVIRT_MEMORY" default:"8192" unit:"MiB" min:"96" usage:"memory of a pod that asks for none"`
	CPUSet   string `flag:"cpuset" env:"LIBVIRT_CPUSET" usage:"CPUs of the machine on which the VMs may run, such as 0-3,8"`
	RootDisk int64  `flag:"root-disk-size" env:"LIBVIRT_ROOT_DISK_SIZE" default:"10" unit:"GiB" min:"0" max:"65536" usage:"size of the root disk; at least that of the base volume"`

	LaunchSecurity string `flag:"launch-security" env:"LIBVIRT_LAUNCH_SECURITY" choices:"s390-pv" usage:"protection of the VM's memory"`
	DisableCVM     bool   `flag:"disable-cvm" env:"DISABLECVM" default:"true" usage:"make ordinary VMs; false wants -launch-security"`

	DomainType    string        `flag:"libvirt-domain-type" env:"LIBVIRT_DOMAIN_TYPE" default:"auto" choices:"auto,kvm,qemu" usage:"how guests run; auto is KVM where it works, else emulation"`
	Kernel        string        `flag:"libvirt-kernel" env:"LIBVIRT_KERNEL" usage:"kernel on the daemon's machine, booted in place of the base volume"`
	Initrd        string        `flag:"libvirt-initrd" env:"LIBVIRT_INITRD" usage:"initramfs that goes with -libvirt-kernel"`
	Cmdline       string        `flag:"libvirt-cmdline" env:"LIBVIRT_CMDLINE" usage:"more words for the command line of -libvirt-kernel"`
	TunnelNetwork string        `flag:"libvirt-tunnel-network" env:"LIBVIRT_TUNNEL_NET" usage:"network of a second interface, for the tunnel of the pod network"`
	AddressWait   time.Duration `flag:"libvirt-address-wait" env:"LIBVIRT_ADDRESS_WAIT" default:"90s" usage:"how long a VM may take to get an address where none can be reserved"`

	SSHKey     string `flag:"libvirt-ssh-key" env:"LIBVIRT_SSH_KEY" usage:"private key file for qemu+ssh; default those of ~/.ssh, and the agent's"`
	KnownHosts string `flag:"libvirt-known-hosts" env:"LIBVIRT_KNOWN_HOSTS" usage:"known_hosts file for qemu+ssh; default ~/.ssh/known_hosts"`
	PKIDir     string `flag:"libvirt-pki-dir" env:"LIBVIRT_PKI_DIR" usage:"folder with cacert.pem, clientcert.pem and clientkey.pem for qemu+tls; default libvirt's own places"`
}

// The ways to run a guest, which are libvirt's names of domain types.
const (
	typeAuto = "auto"
	typeKVM  = "kvm"
	typeQEMU = "qemu" // emulation
)

// Values of -firmware that are not path.
const (
	firmwareBIOS = "bios"
	firmwareEFI  = "efi"
)

// NewManager returns a manager with nothing set.
func NewManager() *config.Manager[Config] {
	return config.New(Name, func(c Config) (provider.Provider, error) { return New(c) })
}

// DefaultConfig returns the flags' defaults.
func DefaultConfig() Config { return config.Defaults[Config]() }

var cpusetSyntax = regexp.MustCompile(`^\^?\d+(-\d+)?(,\^?\d+(-\d+)?)*$`)

// validate reports everything that is wrong whatever the daemon says.
func (c Config) validate() error {
	errs := []error{notEmpty("pool-name", c.Pool), notEmpty("network-name", c.Network), absolute("libvirt-kernel", c.Kernel), absolute("libvirt-initrd", c.Initrd)}
	if c.Kernel == "" {
		errs = append(errs, notEmpty("vol-name", c.Volume))
		if c.Initrd != "" || c.Cmdline != "" {
			errs = append(errs, bad("libvirt-initrd", "it and -libvirt-cmdline need -libvirt-kernel"))
		}
	}
	if c.CPUSet != "" && !cpusetSyntax.MatchString(c.CPUSet) {
		errs = append(errs, bad("cpuset", "%q is not a list of CPUs such as 0-3,8", c.CPUSet))
	}
	if c.Firmware != firmwareBIOS && c.Firmware != firmwareEFI {
		errs = append(errs, absolute("firmware", c.Firmware))
	}
	if isOwnVolume(c.Volume) {
		errs = append(errs, bad("vol-name", "names that begin with %q are those of instances", volumePrefix))
	}
	if c.AddressWait <= 0 {
		errs = append(errs, bad("libvirt-address-wait", "%v is not more than nothing", c.AddressWait))
	}
	return errors.Join(errs...)
}

// bad names a setting by its flag and its variable.
func bad(flag, format string, args ...any) error { return config.Wrong[Config](flag, format, args...) }

func notEmpty(flag, value string) error {
	if value == "" {
		return bad(flag, "it is empty")
	}
	return nil
}

func absolute(flag, value string) error {
	if value != "" && (!path.IsAbs(value) || strings.ContainsAny(value, "\n\x00")) {
		return bad(flag, "%q is not an absolute path", value)
	}
	return nil
}

func logger() *slog.Logger { return slog.With("provider", Name) }
