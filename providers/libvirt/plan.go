// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// plan is everything about an instance, decided before anything of it exists.
type plan struct {
	*record
	host     *host
	cpus     int64
	memory   int64 // MiB
	cpuset   string
	pool     *pool
	boot     boot
	base     *base // nil where a kernel is booted
	security string
	userData string
}

// boot is what an instance starts from, besides its root volume.
type boot struct {
	firmware                string
	kernel, initrd, cmdline string
}

// securityS390 is the only protection of memory there is.
const securityS390 = "s390-pv"

func (p *Provider) plan(ctx context.Context, podName, key string, spec provider.InstanceTypeSpec) (*plan, error) {
	if err := refuse(spec); err != nil {
		return nil, err
	}
	h, err := p.machine(ctx)
	if err != nil {
		return nil, err
	}
	if spec.Arch != "" && spec.Arch != h.arch {
		return nil, fmt.Errorf("%w: architecture %s: %s has %s", provider.ErrInvalidArgument, spec.Arch, p.target, h.arch)
	}
	pl := &plan{host: h, cpuset: p.cfg.CPUSet}
	if pl.security, err = p.security(h); err != nil {
		return nil, err
	}
	if err := p.size(ctx, pl, spec); err != nil {
		return nil, err
	}
	if err := p.bootFrom(ctx, pl, spec.Image); err != nil {
		return nil, err
	}
	for _, name := range p.networks() {
		if _, err := p.activeNetwork(ctx, name); err != nil {
			return nil, err
		}
	}
	pl.record = &record{
		Key: key, Name: provider.InstanceName(podName, key), Pod: podName, Tags: spec.Tags, Phase: phaseMaking,
		Created: time.Now().UTC().Truncate(time.Second), Pool: p.cfg.Pool, Networks: p.networks(), id: instanceID(key),
	}
	return pl, nil
}

// refuse names what this provider has not got.
func refuse(spec provider.InstanceTypeSpec) error {
	switch {
	case spec.InstanceType != "":
		return fmt.Errorf("%w: instance type %q: libvirt has no types; ask for CPUs and memory", provider.ErrInvalidArgument, spec.InstanceType)
	case spec.GPUs != 0 || spec.GPU != "":
		return fmt.Errorf("%w: %d GPUs of model %q: this provider has none", provider.ErrInvalidArgument, spec.GPUs, spec.GPU)
	case spec.MultiNic:
		return fmt.Errorf("%w: a second interface to the outside: this provider gives none", provider.ErrInvalidArgument)
	case spec.Zone != "":
		return fmt.Errorf("%w: zone %q: this provider has no zones", provider.ErrInvalidArgument, spec.Zone)
	case len(spec.Volumes) > 0:
		return fmt.Errorf("%w: volumes: this provider has none", provider.ErrInvalidArgument)
	}
	return nil
}

// minMemory is what the pod VM's kernel needs, in MiB.
const minMemory = 96

func (p *Provider) size(ctx context.Context, pl *plan, spec provider.InstanceTypeSpec) error {
	pl.cpus, pl.memory = cmp.Or(spec.VCPUs, p.cfg.CPUs), cmp.Or(spec.Memory, p.cfg.Memory)
	if pl.cpus < 1 || pl.cpus > 512 {
		return fmt.Errorf("%w: %d CPUs: want 1 to 512", provider.ErrInvalidArgument, pl.cpus)
	}
	if pl.memory < minMemory {
		return fmt.Errorf("%w: %d MiB of memory: want at least %d", provider.ErrInvalidArgument, pl.memory, minMemory)
	}
	has, err := p.hv.hardware(ctx)
	if err != nil {
		return err
	}
	if pl.memory > has.memory && !p.target.testDriver() {
		return fmt.Errorf("%w: %d MiB of memory: the machine of %s has %d (-memory, LIBVIRT_MEMORY, is for pods that ask for none)", provider.ErrCapacity, pl.memory, p.target, has.memory)
	}
	return checkCPUSet(p.cfg.CPUSet, has.cpus)
}

var cpuNumber = regexp.MustCompile(`\d+`)

// checkCPUSet looks for CPUs that the machine has not got.
func checkCPUSet(set string, cpus int64) error {
	for _, text := range cpuNumber.FindAllString(set, -1) {
		if n, err := strconv.ParseInt(text, 10, 64); err != nil || n >= cpus {
			return bad("cpuset", "CPU %s: the machine has %d, from 0", text, cpus)
		}
	}
	return nil
}

// security returns the launch security of VMs on that machine.
func (p *Provider) security(h *host) (string, error) {
	wanted := p.cfg.LaunchSecurity
	if wanted == "" && !p.cfg.DisableCVM {
		wanted = securityS390
	}
	if wanted == securityS390 && h.arch != "s390x" {
		return "", bad("launch-security", "s390-pv needs a machine of architecture s390x, not %s; or set -disable-cvm (DISABLECVM)", arches[h.arch])
	}
	return wanted, nil
}

// bootFrom chooses kernel or root volume. An image that a pod names is a
// volume, whatever the configuration boots.
func (p *Provider) bootFrom(ctx context.Context, pl *plan, image string) error {
	var err error
	if pl.pool, err = p.poolNamed(ctx, p.cfg.Pool); err != nil {
		return err
	}
	if p.cfg.Kernel != "" && image == "" {
		pl.boot = boot{kernel: p.cfg.Kernel, initrd: p.cfg.Initrd, cmdline: commandLine(pl.host, p.cfg.Cmdline)}
		return nil
	}
	pl.boot.firmware = firmwareOf(pl.host.arch, p.cfg.Firmware)
	pl.base, err = p.baseVolume(ctx, pl.pool, image)
	return err
}

// defaultFirmware is x86's.
const defaultFirmware = "/usr/share/OVMF/OVMF_CODE_4M.fd"

func firmwareOf(arch, configured string) string {
	switch {
	case arch == "s390x":
		return firmwareBIOS // it boots from the disk by itself
	case arch == "arm64" && configured == defaultFirmware:
		return firmwareEFI
	}
	return configured
}

// Kernel command lines; package providers/qemu has the reasons.
const (
	cmdlineAll  = "quiet panic=-1"
	cmdlineTCG  = "cryptomgr.notests highres=off nokaslr mitigations=off random.trust_cpu=on"
	cmdlineTCGx = "no_timer_check GODEBUG=cpu.avx2=off noreplace-smp"
)

var serialPorts = map[string]string{"amd64": "ttyS0", "arm64": "ttyAMA0", "s390x": "ttysclp0"}

func commandLine(h *host, more string) string {
	words := []string{"console=" + serialPorts[h.arch], cmdlineAll}
	if h.domainType == typeQEMU {
		words = append(words, cmdlineTCG)
		if h.arch == "amd64" {
			words = append(words, cmdlineTCGx)
		}
	}
	if more != "" {
		words = append(words, more)
	}
	return strings.Join(words, " ")
}
