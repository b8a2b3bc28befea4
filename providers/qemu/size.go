// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// catalogue are the names a pod can choose from. A name is what it says: CPUs,
// x, memory in MiB. Sizes asked for by number need not be in it.
var catalogue = []struct{ cpus, memory int64 }{
	{1, 512}, {1, 1024}, {1, 2048}, {2, 1024}, {2, 2048}, {2, 4096},
	{4, 4096}, {4, 8192}, {8, 8192}, {8, 16384}, {16, 32768},
}

func typeName(cpus, memory int64) string { return fmt.Sprintf("%dx%d", cpus, memory) }

// InstanceTypes implements provider.InstanceTypeLister.
func (p *Provider) InstanceTypes(ctx context.Context) ([]provider.InstanceType, error) {
	var types []provider.InstanceType
	for _, t := range catalogue {
		types = append(types, provider.InstanceType{
			Name: typeName(t.cpus, t.memory), VCPUs: t.cpus, Memory: t.memory, Arch: hostArch,
		})
	}
	return types, nil
}

// size returns CPUs and memory in MiB; a type's name wins over numbers.
func (p *Provider) size(spec provider.InstanceTypeSpec) (cpus, memory int64, err error) {
	if err := refuse(spec); err != nil {
		return 0, 0, err
	}
	cpus, memory = spec.VCPUs, spec.Memory
	if spec.InstanceType != "" {
		if cpus, memory, err = sizeOf(spec.InstanceType); err != nil {
			return 0, 0, err
		}
	}
	cpus, memory = cmp.Or(cpus, p.cfg.CPUs), cmp.Or(memory, p.cfg.Memory)
	if cpus < 0 || cpus > maxCPUs {
		return 0, 0, fmt.Errorf("%w: %d CPUs: want 1 to %d", provider.ErrInvalidArgument, cpus, maxCPUs)
	}
	if memory < minMemory {
		return 0, 0, fmt.Errorf("%w: %d MiB of memory: want at least %d", provider.ErrInvalidArgument, memory, minMemory)
	}
	if host := hostMemory(); host > 0 && memory > host {
		return 0, 0, fmt.Errorf("%w: %d MiB of memory: this machine has %d", provider.ErrCapacity, memory, host)
	}
	return cpus, memory, nil
}

// refuse names what this provider has not got.
func refuse(spec provider.InstanceTypeSpec) error {
	switch {
	case spec.Arch != "" && spec.Arch != hostArch:
		return fmt.Errorf("%w: architecture %s: this provider has only %s", provider.ErrInvalidArgument, spec.Arch, hostArch)
	case spec.GPUs != 0 || spec.GPU != "":
		return fmt.Errorf("%w: %d GPUs of model %q: this provider has none", provider.ErrInvalidArgument, spec.GPUs, spec.GPU)
	case spec.MultiNic:
		return fmt.Errorf("%w: a second interface: this provider gives one", provider.ErrInvalidArgument)
	case spec.Zone != "":
		return fmt.Errorf("%w: zone %q: this provider has no zones", provider.ErrInvalidArgument, spec.Zone)
	case len(spec.Volumes) > 0:
		return fmt.Errorf("%w: volumes: this provider attaches disks only to an instance that is there", provider.ErrInvalidArgument)
	}
	return nil
}

func sizeOf(name string) (cpus, memory int64, err error) {
	var names []string
	for _, t := range catalogue {
		names = append(names, typeName(t.cpus, t.memory))
		if name == names[len(names)-1] {
			return t.cpus, t.memory, nil
		}
	}
	return 0, 0, fmt.Errorf("%w: instance type %q: there are %s", provider.ErrInvalidArgument, name, strings.Join(names, ", "))
}

// leastMemory returns how many MiB a guest needs until its programs run. The kernel
// takes kernelMemory. The initramfs must fit three times into the rest: once as it was
// loaded, and once unpacked into a file system that gets half of the rest. With less
// memory the kernel panics, or programs are missing and the guest powers off.
func leastMemory(from boot) int64 {
	info, err := os.Stat(from.Initrd)
	if err != nil {
		return 0 // a disk has it inside; a missing file is reported elsewhere
	}
	const mib = 1 << 20
	return kernelMemory + (3*info.Size()+mib-1)/mib
}

func enoughMemory(from boot, memory int64) error {
	if least := leastMemory(from); memory < least {
		return fmt.Errorf("%d MiB of memory: a guest of %s needs at least %d", memory, from.Initrd, least)
	}
	return nil
}

// hostMemory returns this machine's memory in MiB; 0 if unknown.
func hostMemory() int64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	var kib int64
	if _, err := fmt.Sscanf(string(data), "MemTotal: %d kB", &kib); err != nil {
		return 0
	}
	return kib / 1024
}
