// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"path"
	"strings"

	x "libvirt.org/go/libvirtxml"
)

// machines are the machine types of architectures.
var machines = map[string]string{"amd64": "q35", "arm64": "virt", "s390x": "s390-ccw-virtio"}

// domainXML returns the definition of a planned instance.
func (pl *plan) domainXML() (string, error) {
	metadata, err := pl.definition()
	if err != nil {
		return "", err
	}
	domain := x.Domain{
		Type:     pl.host.domainType,
		Name:     pl.Name,
		UUID:     pl.id,
		Metadata: &x.DomainMetadata{XML: metadata},
		Memory:   &x.DomainMemory{Value: uint(pl.memory), Unit: "MiB"},
		VCPU:     &x.DomainVCPU{Value: uint(pl.cpus), Placement: "static", CPUSet: pl.cpuset},
		OS:       pl.osXML(),
		Features: pl.featuresXML(),
		CPU:      pl.cpuXML(),
		Clock:    &x.DomainClock{Offset: "utc"},
		// A guest that has ended or wants to begin again has lost its pod.
		OnPoweroff: "destroy", OnReboot: "destroy", OnCrash: "destroy",
		Devices: pl.devicesXML(),
	}
	if pl.security == securityS390 {
		domain.LaunchSecurity = &x.DomainLaunchSecurity{S390PV: &x.DomainLaunchSecurityS390PV{}}
	}
	return domain.Marshal()
}

func (pl *plan) osXML() *x.DomainOS {
	os := &x.DomainOS{
		Type:   &x.DomainOSType{Arch: arches[pl.host.arch], Machine: machines[pl.host.arch], Type: "hvm"},
		Kernel: pl.boot.kernel, Initrd: pl.boot.initrd, Cmdline: pl.boot.cmdline,
	}
	if pl.host.domainType == "test" {
		os.Type = &x.DomainOSType{Type: "hvm"} // it knows no real machine
		return os
	}
	switch firmware := pl.boot.firmware; firmware {
	case "":
	case firmwareBIOS:
		if pl.host.arch == "amd64" {
			os.BIOS = &x.DomainBIOS{UseSerial: "yes"} // it says on the console what it boots
		}
	case firmwareEFI:
		os.Firmware = firmwareEFI
	default:
		os.Loader = &x.DomainLoader{Path: firmware, Readonly: "yes", Type: "pflash"}
		os.NVRam = &x.DomainNVRam{Template: variableStore(firmware)}
	}
	return os
}

// variableStore returns the template of the UEFI variables that belongs to a
// file of UEFI code: distributions name the one after the other. Where they do
// not, the daemon's own table has to know.
func variableStore(code string) string {
	folder, file := path.Split(code)
	vars := strings.Replace(file, "CODE", "VARS", 1)
	if vars == file {
		return ""
	}
	// The variables do not depend on whether the code does Secure Boot.
	return folder + strings.Replace(vars, ".secboot", "", 1)
}

func (pl *plan) featuresXML() *x.DomainFeatureList {
	if pl.host.arch == "s390x" {
		return nil
	}
	features := &x.DomainFeatureList{ACPI: &x.DomainFeature{}}
	if pl.boot.kernel != "" && pl.host.arch == "arm64" {
		features.ACPI = nil // ACPI needs UEFI there; the kernel gets a device tree
	}
	if pl.host.arch == "amd64" {
		features.APIC = &x.DomainFeatureAPIC{}
	}
	return features
}

// cpuXML gives KVM guests the machine's CPU. Emulated ones get everything but
// what is slower there than its replacement; package providers/qemu has the
// reasons.
func (pl *plan) cpuXML() *x.DomainCPU {
	switch {
	case pl.host.domainType == typeKVM:
		return &x.DomainCPU{Mode: "host-passthrough", Check: "none"}
	case pl.host.domainType != typeQEMU || pl.host.arch == "s390x":
		return nil
	case pl.host.arch == "arm64":
		return &x.DomainCPU{Mode: "maximum"}
	}
	cpu := &x.DomainCPU{Mode: "maximum"}
	for _, name := range []string{"erms", "fsrm", "aes"} {
		cpu.Features = append(cpu.Features, x.DomainCPUFeature{Name: name, Policy: "disable"})
	}
	return cpu
}

func (pl *plan) devicesXML() *x.DomainDeviceList {
	devices := &x.DomainDeviceList{
		Disks:       pl.disksXML(),
		Controllers: []x.DomainController{{Type: "scsi", Model: "virtio-scsi", Driver: protected(pl, x.DomainControllerDriver{IOMMU: "on"})}},
		Channels: []x.DomainChannel{{
			Source: &x.DomainChardevSource{UNIX: &x.DomainChardevSourceUNIX{Mode: "bind"}},
			Target: &x.DomainChannelTarget{VirtIO: &x.DomainChannelTargetVirtIO{Name: "org.qemu.guest_agent.0"}},
		}},
		MemBalloon: &x.DomainMemBalloon{Model: "none"},
		RNGs: []x.DomainRNG{{
			Model:   "virtio",
			Driver:  protected(pl, x.DomainRNGDriver{IOMMU: "on"}),
			Backend: &x.DomainRNGBackend{Random: &x.DomainRNGBackendRandom{Device: "/dev/urandom"}},
		}},
	}
	if pl.security != "" {
		devices.Controllers = append(devices.Controllers, x.DomainController{Type: "virtio-serial", Driver: protected(pl, x.DomainControllerDriver{IOMMU: "on"})})
	}
	if pl.host.arch != "s390x" {
		devices.Controllers = append(devices.Controllers, x.DomainController{Type: "usb", Model: "none"})
	}
	for i, network := range pl.Networks {
		devices.Interfaces = append(devices.Interfaces, x.DomainInterface{
			MAC:    &x.DomainInterfaceMAC{Address: macOf(pl.id, i)},
			Source: &x.DomainInterfaceSource{Network: &x.DomainInterfaceSourceNetwork{Network: network}},
			Model:  &x.DomainInterfaceModel{Type: "virtio"},
			Driver: protected(pl, x.DomainInterfaceDriver{IOMMU: "on"}),
		})
	}
	console := &x.DomainChardevSource{File: &x.DomainChardevSourceFile{
		Path: pl.pool.path(volumesOf(pl.id) + consoleVolume), Append: "on",
	}}
	if pl.host.arch == "s390x" {
		devices.Consoles = []x.DomainConsole{{Source: console, Target: &x.DomainConsoleTarget{Type: "sclp"}}}
	} else {
		devices.Serials = []x.DomainSerial{{Source: console}}
	}
	return devices
}

// protected returns the driver of a protected guest's device, which keeps to the memory
// that the guest shares with it; others need none.
func protected[T any](pl *plan, driver T) *T {
	if pl.security == "" {
		return nil
	}
	return &driver
}

// disksXML has the seed as a CD on virtio-scsi: the SATA drive that is
// libvirt's default on q35 is invisible to cloud kernels.
func (pl *plan) disksXML() []x.DomainDisk {
	var disks []x.DomainDisk
	if pl.base != nil {
		driver := &x.DomainDiskDriver{Name: "qemu", Type: "qcow2", Discard: "unmap"}
		if pl.security != "" {
			driver.IOMMU = "on"
		}
		disks = append(disks, x.DomainDisk{
			Device: "disk",
			Driver: driver,
			Source: fileSource(pl.pool.path(volumesOf(pl.id) + rootVolume)),
			Target: &x.DomainDiskTarget{Dev: "vda", Bus: "virtio"},
			Boot:   &x.DomainDeviceBoot{Order: 1},
			Serial: "root",
		})
	}
	return append(disks, x.DomainDisk{
		Device:   "cdrom",
		Driver:   &x.DomainDiskDriver{Name: "qemu", Type: "raw"},
		Source:   fileSource(pl.pool.path(pl.Seed)),
		Target:   &x.DomainDiskTarget{Dev: "sda", Bus: "scsi"},
		ReadOnly: &x.DomainDiskReadOnly{},
		Serial:   "cidata",
	})
}

func fileSource(file string) *x.DomainDiskSource {
	return &x.DomainDiskSource{File: &x.DomainDiskSourceFile{File: file}}
}
