// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/internal/nocloud"
)

// Names of an instance's files, relative to its folder, in which QEMU runs: a
// socket's path must be shorter than 108 bytes (unix(7)), a state folder's
// need not be.
const (
	seedName    = "seed.iso"
	scratchName = "scratch.img"
	overlayName = "disk.qcow2"
	varsName    = "uefi-vars.fd"
	consoleName = "console.log"
	qmpName     = "qmp.sock"
	outputName  = "qemu.log"
)

// Kernel command lines. Without panic=-1 a guest that has died would look
// alive. What emulation gets: the crypto self-tests take 0.2 to 0.4 s. The
// timer check counts on the timer's interrupts coming in time, which they do
// not on a busy machine: the kernel panics (KVM guests skip it by themselves).
// Without highres=off a busy Go program sets a timer of 20 us thousands of times a
// second, to watch over its threads; with it, timers are as coarse as the
// kernel's tick, 4 ms. PID 1 gets GODEBUG as its environment, for the guest's
// own programs: AVX2 in emulation is slower than SSE. Pods still see it. The
// rest weakens a guest against attacks on a CPU's shortcuts, of which TCG has
// none.
const (
	appendAll = "console=ttyS0 quiet panic=-1"
	appendTCG = "cryptomgr.notests no_timer_check highres=off GODEBUG=cpu.avx2=off nokaslr mitigations=off random.trust_cpu=on noreplace-smp"
)

// Descriptors that QEMU is started with (os/exec: ExtraFiles begin at 3).
const (
	// tapFD is a template's tap.
	tapFD = 3
	// memoryFD and stateFD are the saved memory and the saved rest.
	memoryFD = 3
	stateFD  = 4
	// tpmFD is the end of a pair of sockets, QEMU's and swtpm's. No VM with a TPM is restored.
	tpmFD = 3
)

// arguments returns QEMU's command line for an instance. vhost reports whether the
// kernel can carry the packets.
func arguments(r *record, vhost bool) []string {
	args := []string{
		"-name", "guest=" + r.ID, "-uuid", r.UUID,
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-accel", accelOption(r.Accel), "-cpu", cpuModel(r.Accel),
		"-smp", strconv.FormatInt(r.CPUs, 10), "-m", strconv.FormatInt(r.Memory, 10),
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-chardev", "file,id=console,path=" + consoleName + ",append=on", "-serial", "chardev:console",
		"-chardev", "socket,id=qmp,path=" + qmpName + ",server=on,wait=off", "-mon", "chardev=qmp,mode=control",
		"-object", "rng-random,id=rng0,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng0",
	}
	args = append(args, originArguments(r)...)
	args = append(args, networkArguments(r, vhost)...)
	if r.TPM {
		args = append(args, tpmArguments()...)
	}
	args = append(args, diskArguments("cidata", seedName, "format=raw,readonly=on")...)
	if r.Scratch > 0 {
		// What is on it is worth nothing after the pod. A full disk of the
		// host is an error for the guest, which can tell its user, instead of
		// a VM that stands still.
		args = append(args, diskArguments("scratch", scratchName, "format=raw,cache=unsafe,discard=unmap,werror=report")...)
	}
	return append(args, controllerArguments(r.disks)...)
}

// accelOption bounds the memory for translated code, which by default grows to
// 1 GiB for each VM.
func accelOption(accel string) string {
	if accel == AccelTCG {
		return "tcg,tb-size=256"
	}
	return accel
}

// cpuModel hides from emulated guests that string instructions are fast: in
// TCG they are not, and a kernel that copies by other means boots with a tenth
// less CPU time. It hides AES as well: emulated, AES-GCM takes three times as
// long as ChaCha20-Poly1305, and TLS libraries choose by this flag.
func cpuModel(accel string) string {
	if accel == AccelKVM {
		return "host"
	}
	return "max,-erms,-fsrm,-aes"
}

// originArguments returns where the machine's memory comes from: a boot, with or
// without a file that keeps it, or such a file, of which each machine has its
// own copy as soon as it writes.
func originArguments(r *record) []string {
	const machine = "q35,memory-backend=memory"
	object := fmt.Sprintf("memory-backend-file,id=memory,size=%dM", r.Memory)
	switch {
	case r.saving:
		return append([]string{"-machine", machine, "-object", object + ",share=on,mem-path=" + memoryName}, bootArguments(r)...)
	case r.Template != "":
		return []string{"-machine", machine, "-object", fmt.Sprintf("%s,share=off,mem-path=/proc/self/fd/%d", object, memoryFD), "-incoming", "defer"}
	}
	return append([]string{"-machine", "q35"}, bootArguments(r)...)
}

func bootArguments(r *record) []string {
	if r.Boot.Firmware != "" {
		args := []string{
			"-drive", "if=pflash,format=raw,readonly=on,file=" + escape(r.Boot.Firmware),
			"-drive", "if=pflash,format=raw,file=" + varsName,
		}
		if r.Boot.Disk == "" { // its command line and initramfs are inside, and measured
			return append(args, "-kernel", r.Boot.Kernel)
		}
		return append(args, diskArguments("root", overlayName, "format=qcow2,discard=unmap", "bootindex=0")...)
	}
	words := []string{appendAll}
	if r.Accel == AccelTCG {
		words = append(words, appendTCG)
	}
	if r.Append != "" {
		words = append(words, r.Append)
	}
	if r.saving {
		words = append(words, nocloud.TemplateArg)
	}
	return []string{"-kernel", r.Boot.Kernel, "-initrd", r.Boot.Initrd, "-append", strings.Join(words, " ")}
}

// networkArguments drops the NIC's option ROM: nothing boots from it.
func networkArguments(r *record, vhost bool) []string {
	netdev := fmt.Sprintf("tap,id=net0,ifname=%s,script=no,downscript=no", r.Interface)
	if r.saving {
		netdev = fmt.Sprintf("tap,id=net0,fd=%d", tapFD)
	}
	if vhost {
		netdev += ",vhost=on"
	}
	return []string{
		"-netdev", netdev,
		"-device", fmt.Sprintf("virtio-net-pci,netdev=net0,mac=%s,host_mtu=%d,romfile=", r.MAC, r.MTU),
	}
}

func diskArguments(serial, file, drive string, device ...string) []string {
	dev := append([]string{"virtio-blk-pci", "drive=" + serial, "serial=" + serial}, device...)
	return []string{
		"-drive", fmt.Sprintf("if=none,id=%s,file=%s,%s", serial, file, drive),
		"-device", strings.Join(dev, ","),
	}
}

// escape doubles commas, as QEMU's option lists want it.
func escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }
