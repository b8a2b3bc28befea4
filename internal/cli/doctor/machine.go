// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/kvm"
	"github.com/outrigger/outrigger/internal/localnet"
)

// Machine checks whether VMs can run on this machine.
type Machine struct {
	// FS is the folder with /proc, /sys and /dev: "/", except in tests.
	FS string
	// QEMU is the program's name.
	QEMU string
	// Images are the folders that may hold the guest image, in the order in which the
	// provider searches them.
	Images []string
	// Root is the folder for state; its disk must have room.
	Root string
	// Instances is the folder of the VMs' disks.
	Instances string
}

// What one VM needs, in bytes: memoryNeeded for QEMU with a guest of 512 MiB,
// diskNeeded below Root, imagesNeeded for container images below Instances.
const (
	memoryNeeded = 700 << 20
	diskNeeded   = 64 << 20
	imagesNeeded = 1 << 30
)

// Checks returns all checks of the machine.
func (m Machine) Checks() []Check {
	return []Check{
		{"root", m.root}, {"qemu", m.qemu}, {"kvm", m.kvm}, {"guest image", m.image}, {"tap", m.tun},
		{"nftables", m.nft}, {"forwarding", m.forwarding}, {"memory", m.memory}, {"disk", m.disk},
		{"disk of VMs", m.imageDisk},
	}
}

func (m Machine) path(name string) string { return filepath.Join(m.FS, name) }

// Capability bits (linux/capability.h).
const (
	capNetAdmin = 12
	capSysAdmin = 21
)

func (m Machine) root(context.Context) Result {
	status, err := os.ReadFile(m.path("proc/self/status"))
	if err != nil {
		return Fail("mount /proc", "%v", err)
	}
	_, rest, _ := strings.Cut(string(status), "CapEff:")
	field, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	caps, err := strconv.ParseUint(field, 16, 64)
	if err != nil {
		return Fail("mount /proc of this kernel", "capabilities cannot be read: %v", err)
	}
	var missing []string
	for bit, name := range map[int]string{capNetAdmin: "CAP_NET_ADMIN", capSysAdmin: "CAP_SYS_ADMIN"} {
		if caps&(1<<bit) == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return Fail("run outrigger as root (sudo); in a container, add these capabilities", "missing %s", strings.Join(missing, ", "))
	}
	return Good("CAP_NET_ADMIN and CAP_SYS_ADMIN are there")
}

const installQEMU = "apt-get install --no-install-recommends qemu-system-x86 qemu-utils"

func (m Machine) qemu(ctx context.Context) Result {
	path, err := exec.LookPath(m.QEMU)
	if err != nil {
		return Fail(installQEMU, "%s is not in PATH", m.QEMU)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "-version").Output()
	if err != nil {
		return Fail(installQEMU, "%s -version: %v", path, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	version := parseVersion(line)
	if version < 6 {
		return Warn("install QEMU 7.2 or newer", "%s; tested are 7.2 and newer", line)
	}
	return Good("%s (%s)", line, path)
}

// parseVersion returns the major number of "QEMU emulator version 7.2.22 ...".
func parseVersion(line string) int {
	_, rest, _ := strings.Cut(line, "version ")
	major, _, _ := strings.Cut(rest, ".")
	n, _ := strconv.Atoi(major)
	return n
}

// kvm checks what can be checked without starting a guest. That /dev/kvm can be opened
// proves little, so the provider starts a probe guest later.
func (m Machine) kvm(context.Context) Result {
	const slow = "nothing: pods run in emulation (TCG), about ten times slower. For KVM use a machine with nested virtualization or bare metal"
	f, err := os.OpenFile(m.path("dev/kvm"), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return Warn(slow, "there is no /dev/kvm")
	}
	if err != nil {
		return Warn("let this user open /dev/kvm (group kvm)", "%v; pods run in emulation (TCG)", err)
	}
	f.Close()
	if why := kvm.Impossible(m.FS); why != "" {
		return Warn(slow, "/dev/kvm is there, but %s", why)
	}
	return Good("/dev/kvm can be opened; the provider makes sure with a probe guest")
}

func (m Machine) image(context.Context) Result {
	for _, dir := range m.Images {
		kernel, err1 := os.Stat(filepath.Join(dir, "vmlinux"))
		initrd, err2 := os.Stat(filepath.Join(dir, "initrd.cpio"))
		if err1 == nil && err2 == nil {
			return Good("%s (%d MiB)", dir, (kernel.Size()+initrd.Size())>>20)
		}
	}
	return Fail("install Outrigger again, or in a checkout: make podvm; or set QEMU_KERNEL and QEMU_INITRD", "no vmlinux and initrd.cpio in %s", strings.Join(m.Images, " or "))
}

func (m Machine) tun(context.Context) Result {
	f, err := os.OpenFile(m.path("dev/net/tun"), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return Fail("modprobe tun; in a container, pass the device /dev/net/tun on", "there is no /dev/net/tun")
	}
	if err != nil {
		return Fail("run outrigger as root", "%v", err)
	}
	f.Close()
	return Good("/dev/net/tun can be opened")
}

func (m Machine) forwarding(context.Context) Result {
	data, err := os.ReadFile(m.path("proc/sys/net/ipv4/ip_forward"))
	if err != nil {
		return Fail("mount /proc of this network namespace", "%v", err)
	}
	if strings.TrimSpace(string(data)) == "1" {
		return Good("net.ipv4.ip_forward is on")
	}
	if unix.Access(m.path("proc/sys/net/ipv4/ip_forward"), unix.W_OK) != nil {
		return Warn("sysctl -w net.ipv4.ip_forward=1", "net.ipv4.ip_forward is off and cannot be turned on from here: pods reach this machine only")
	}
	return Good("net.ipv4.ip_forward is off; it is turned on while pods run")
}

func (m Machine) memory(context.Context) Result {
	f, err := os.Open(m.path("proc/meminfo"))
	if err != nil {
		return Fail("mount /proc", "%v", err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var kib int64
		if n, _ := fmt.Sscanf(s.Text(), "MemAvailable: %d kB", &kib); n == 1 {
			if kib<<10 < memoryNeeded {
				return Warn("stop something, or give pods less with --memory", "%d MiB are free; a VM of the default size takes about %d", kib>>10, memoryNeeded>>20)
			}
			return Good("%d MiB are free: about %d VMs of the default size", kib>>10, kib<<10/memoryNeeded)
		}
	}
	return Warn("", "free memory is unknown")
}

func (m Machine) disk(context.Context) Result {
	return roomFor(m.Root, diskNeeded, "make room, or give --root a folder on another disk", Fail)
}

// imageDisk checks the disk of container images and writable layers.
func (m Machine) imageDisk(context.Context) Result {
	return roomFor(m.Instances, imagesNeeded, "make room, or name a folder on another disk with QEMU_STATE_DIR", Warn)
}

// roomFor looks for free bytes at a folder, or at the nearest parent that exists. With too
// few the result is that of lack.
func roomFor(dir string, needed int64, mend string, lack func(fix, format string, args ...any) Result) Result {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	for ; errors.Is(err, unix.ENOENT) && dir != "/"; err = unix.Statfs(dir, &st) {
		dir = filepath.Dir(dir)
	}
	if err != nil {
		return Fail(mend, "%s: %v", dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < needed {
		return lack(mend, "only %d MiB are free in %s, and %d are needed", free>>20, dir, needed>>20)
	}
	return Good("%d MiB are free in %s", int64(st.Bavail)*st.Bsize>>20, dir)
}

func (m Machine) nft(context.Context) Result {
	const fix = "use a kernel with nf_tables and NAT (CONFIG_NF_TABLES, CONFIG_NFT_NAT), as root"
	conn, err := nftables.New()
	if err != nil {
		return Fail(fix, "%v", err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		return Fail(fix, "tables cannot be listed: %v", err)
	}
	return Good("nf_tables works; %d tables", len(tables))
}

// VXLAN makes a VXLAN interface in a network namespace that goes away with the
// thread that made it, so the machine's own network is not touched.
func VXLAN() Check {
	return Check{"vxlan", func(context.Context) Result {
		err := localnet.InNewNetns(func() error {
			return netlink.LinkAdd(&netlink.Vxlan{
				LinkAttrs: netlink.LinkAttrs{Name: "probe"}, VxlanId: 1, Port: 4789, Group: net.IPv4(192, 0, 2, 1),
			})
		})
		switch {
		case err == nil:
			return Good("a VXLAN interface can be made")
		case errors.Is(err, unix.EPERM):
			return Fail("run outrigger as root", "network namespaces: %v", err)
		}
		return Fail("modprobe vxlan, or use a kernel with CONFIG_VXLAN", "a VXLAN interface cannot be made: %v", err)
	}}
}

// Subnets checks that no other interface and no route uses the networks that
// will be made. own are the bridges that may be there already.
func Subnets(own []string, subnets []netip.Prefix) Check {
	return Check{"subnets", func(context.Context) Result {
		err := localnet.CheckFree(subnets, own...)
		switch {
		case errors.Is(err, localnet.ErrClash):
			return Fail("take that route away, or give the VMs other addresses (QEMU_SUBNET); --network none does without the pods' network", "%v", err)
		case err != nil:
			return Warn("run outrigger as root", "the routes cannot be read: %v", err)
		}
		return Good("%d networks are free", len(subnets))
	}}
}
