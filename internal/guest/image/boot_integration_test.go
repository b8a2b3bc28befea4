// SPDX-License-Identifier: Apache-2.0

//go:build integration

package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kdomanski/iso9660"

	"github.com/outrigger/outrigger/internal/wholefile"
	"github.com/outrigger/outrigger/test/tier"
)

// bootDeadline is over ten times what a boot takes on an idle machine without
// KVM.
const bootDeadline = 3 * time.Minute

// testImage builds an image whose agent is test/podvmprobe.
func testImage(t *testing.T, formats ...string) string {
	t.Helper()
	return testImageWith(t, Options{Formats: formats})
}

// testImageWith is [testImage] with options.
func testImageWith(t *testing.T, o Options) string {
	t.Helper()
	needTools(t, "qemu-system-x86_64", "qemu-system-x86", "apt-get", "apt", "dpkg-deb", "dpkg", "depmod", "kmod", "qemu-img", "qemu-utils")
	dir := t.TempDir()
	bins := filepath.Join(dir, "bin")
	goBuild(t, filepath.Join(bins, initProgram), modulePath+"/cmd/"+initProgram)
	goBuild(t, filepath.Join(bins, "podvm-agent"), modulePath+"/test/podvmprobe")
	for _, name := range []string{"process-user-data", "agent-protocol-forwarder"} {
		if err := os.Symlink("podvm-agent", filepath.Join(bins, name)); err != nil {
			t.Fatal(err)
		}
	}
	o.Output, o.Binaries = filepath.Join(dir, "image"), bins
	buildTestImage(t, o)
	return o.Output
}

func buildTestImage(t *testing.T, o Options) *Summary {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	o.Cache, o.Cmdline, o.Log = filepath.Join(cache, "outrigger", "podvm"), DefaultCmdline, t.Logf
	summary, err := Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return summary
}

// needTools takes pairs of program and Debian package.
func needTools(t *testing.T, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if _, err := exec.LookPath(pairs[i]); err != nil {
			t.Skipf("%s is not installed: run apt-get install %s to run this test", pairs[i], pairs[i+1])
		}
	}
}

func goBuild(t *testing.T, out, pkg string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, text)
	}
}

// seedISO writes a NoCloud seed with the label cidata.
func seedISO(t *testing.T, files map[string]string) string {
	t.Helper()
	w, err := iso9660.NewWriter()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Cleanup()
	for name, text := range files {
		if err := w.AddFile(strings.NewReader(text), name); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := w.WriteTo(&b, "cidata"); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "seed.iso")
	if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// vm is a running QEMU.
type vm struct {
	cmd   *exec.Cmd
	stdin io.Writer
	out   *consoleLog
	done  chan error
}

// consoleLog collects the console and wakes those who wait for a line.
type consoleLog struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
}

func (c *consoleLog) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(p)
	close(c.changed)
	c.changed = make(chan struct{})
	return len(p), nil
}

func (c *consoleLog) read() (string, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String(), c.changed
}

// startVM boots without network to the outside; extra are QEMU arguments.
func startVM(t *testing.T, extra ...string) *vm {
	t.Helper()
	args := append([]string{
		"-nographic", "-nodefaults", "-no-reboot", "-accel", "tcg", "-cpu", "max", "-m", "512", "-serial", "stdio", "-snapshot",
	}, extra...)
	v := &vm{out: &consoleLog{changed: make(chan struct{})}, done: make(chan error, 1)}
	v.cmd = exec.Command("qemu-system-x86_64", args...)
	v.cmd.Stdout, v.cmd.Stderr = v.out, v.out
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if v.stdin, err = v.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { v.done <- v.cmd.Wait(); close(v.done) }()
	t.Cleanup(func() {
		_ = v.cmd.Process.Kill()
		<-v.done
		if t.Failed() {
			text, _ := v.out.read()
			t.Logf("console:\n%s", text)
		}
	})
	return v
}

func directBoot(image, cmdline string) []string {
	return []string{
		"-M", "q35",
		"-kernel", filepath.Join(image, "vmlinux"), "-initrd", filepath.Join(image, "initrd.cpio"),
		"-append", strings.TrimSpace(DefaultCmdline + " random.trust_cpu=on " + cmdline),
	}
}

// await waits for text on the console.
func (v *vm) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(bootDeadline)
	for {
		all, changed := v.out.read()
		if strings.Contains(all, text) {
			return
		}
		select {
		case <-changed:
		case err := <-v.done:
			// All output is there once QEMU has been waited for.
			if all, _ := v.out.read(); !strings.Contains(all, text) {
				t.Fatalf("the VM ended (%v) before it printed %q", err, text)
			}
			return
		case <-deadline:
			t.Fatalf("no %q on the console", text)
		}
	}
}

// awaitEnd waits until QEMU has ended by itself.
func (v *vm) awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case <-v.done:
	case <-time.After(bootDeadline):
		t.Fatal("QEMU runs on")
	}
}

// probe returns what the probe said about a subject, one element a line.
func (v *vm) probe(subject string) []string {
	all, _ := v.out.read()
	var found []string
	for line := range strings.Lines(all) {
		if _, rest, ok := strings.Cut(strings.TrimSpace(line), "PROBE "+subject+" "); ok {
			found = append(found, rest)
		}
	}
	return found
}

func (v *vm) check(t *testing.T, subject string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, v.probe(subject)); diff != "" {
		t.Errorf("%s:\n%s", subject, diff)
	}
}

func userNIC() []string {
	return []string{"-netdev", "user,id=n0,restrict=on,ipv6=off", "-device", "virtio-net-pci,netdev=n0,romfile=,mac=52:54:00:00:00:60"}
}

const staticNetwork = `version: 2
ethernets:
  id0:
    match: {macaddress: "52:54:00:00:00:60"}
    set-name: eth7
    addresses: [10.9.0.5/24, "fd00:9::5/64"]
    routes:
    - {to: default, via: 10.9.0.1}
    mtu: 1400
    nameservers: {addresses: [10.9.0.1], search: [x.local]}
`

func TestGuestFromSeed(t *testing.T) {
	tier.OnlyAll(t)
	t.Parallel()
	image := testImage(t, FormatInitramfs)
	seed := seedISO(t, map[string]string{
		"user-data": "#cloud-config", "network-config": staticNetwork, "meta-data": "local-hostname: podvm-a\n",
	})
	scratch := ext4Disk(t, "data")
	v := startVM(t, append(append(directBoot(image, ""), userNIC()...),
		"-drive", "if=none,id=cd,format=raw,readonly=on,file="+seed, "-device", "virtio-blk-pci,drive=cd,serial=cidata",
		"-drive", "if=none,id=sc,format=raw,file="+scratch, "-device", "virtio-blk-pci,drive=sc,serial=scratch")...)
	v.await(t, "PROBE done")
	v.check(t, "args", "[provision-files] user-data #cloud-config")
	v.check(t, "socket", "<nil>")
	v.check(t, "hostname", "podvm-a")
	v.check(t, "controllers", "[cpuset cpu io memory hugetlb pids rdma misc]")
	v.check(t, "resolv", "[search x.local nameserver 10.9.0.1]")
	v.check(t, "scratch", "ext4")
	v.check(t, "nic", "lo 65536 [127.0.0.1/8 ::1/128]", "eth7 1400 [10.9.0.5/24 fd00:9::5/64]")
	v.check(t, "route", "eth7 00000000 0100090A", "eth7 0000090A 00000000")
	v.check(t, "nfnetlink", "ok")
	v.check(t, "zombies", "0")
	v.check(t, "container", "in the container as pid 1 on crun <nil>")
	v.await(t, "podvm-agent ended: exit code 7")
}

func ext4Disk(t *testing.T, label string) string {
	t.Helper()
	needTools(t, "mke2fs", "e2fsprogs")
	name := filepath.Join(t.TempDir(), "scratch.raw")
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-L", label, name, "16M").CombinedOutput(); err != nil {
		t.Fatalf("mke2fs: %v\n%s", err, out)
	}
	return name
}

// TestDriverOfACloudsNIC has the one NIC of a cloud that QEMU can show.
func TestDriverOfACloudsNIC(t *testing.T) {
	t.Parallel()
	image := testImage(t, FormatInitramfs)
	v := startVM(t, append(directBoot(image, ""), "-netdev", "user,id=n0,restrict=on,ipv6=off", "-device", "vmxnet3,netdev=n0,romfile=")...)
	v.await(t, "loaded vmxnet3, whose device is here")
	v.await(t, "PROBE done")
	v.check(t, "nic", "lo 65536 [127.0.0.1/8 ::1/128]", "eth0 1500 [10.0.2.15/24]")
}

func TestGuestWithoutNetworkConfig(t *testing.T) {
	tier.OnlyAll(t)
	t.Parallel()
	image := testImage(t, FormatInitramfs)
	for _, c := range []struct {
		name, cmdline, nic, route string
	}{
		// QEMU's own DHCP server names no router on a closed network.
		{"DHCP", "", "eth0 1500 [10.0.2.15/24]", "eth0 0002000A 00000000"},
		{"kernel command line", "outrigger.ip=10.0.2.77/24 outrigger.gw=10.0.2.9", "eth0 1500 [10.0.2.77/24]", "eth0 00000000 0902000A"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := startVM(t, append(directBoot(image, c.cmdline), userNIC()...)...)
			v.await(t, "PROBE done")
			v.check(t, "nic", "lo 65536 [127.0.0.1/8 ::1/128]", c.nic)
			if r := v.probe("route"); len(r) == 0 || r[0] != c.route {
				t.Errorf("routes %q, want %q first", r, c.route)
			}
		})
	}
}

func TestSeedOnOtherDrives(t *testing.T) {
	tier.OnlyAll(t)
	t.Parallel()
	image := testImage(t, FormatInitramfs)
	seed := seedISO(t, map[string]string{"user-data": "#cloud-config on a CD", "meta-data": "local-hostname: cd\n"})
	drive := []string{"-drive", "if=none,id=cd,format=raw,media=cdrom,readonly=on,file=" + seed}
	for name, args := range map[string][]string{
		"virtio-scsi": append(directBoot(image, ""), "-device", "virtio-scsi-pci", "-device", "scsi-cd,drive=cd"),
		"IDE":         append(append(directBoot(image, ""), "-device", "ide-cd,drive=cd"), "-M", "pc"),
	} {
		t.Run(name, func(t *testing.T) {
			v := startVM(t, append(drive, args...)...)
			v.await(t, "PROBE done")
			v.check(t, "args", "[provision-files] user-data #cloud-config on a CD")
			v.check(t, "hostname", "cd")
		})
	}
}

func TestPowerButtonEndsTheVM(t *testing.T) {
	t.Parallel()
	image := testImage(t, FormatInitramfs)
	dir, err := os.MkdirTemp("/tmp", "qmp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	v := startVM(t, append(directBoot(image, ""), "-qmp", "unix:"+dir+"/s,server=on,wait=off")...)
	v.await(t, "loaded 4 late modules")
	v.await(t, "listening to the power button")
	qmp(t, dir+"/s", "system_powerdown")
	v.await(t, "powering off: terminated")
	v.awaitEnd(t)
}

func qmp(t *testing.T, socket, command string) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dec := json.NewDecoder(c)
	for _, cmd := range []string{"qmp_capabilities", command} {
		fmt.Fprintf(c, `{"execute":%q}`, cmd)
		for answered := false; !answered; {
			var m map[string]json.RawMessage
			if err := dec.Decode(&m); err != nil {
				t.Fatal(err)
			}
			_, answered = m["return"]
		}
	}
}

func TestBrokenImageSaysSoAndEnds(t *testing.T) {
	tier.OnlyAll(t) // nothing is promised of it
	t.Parallel()
	image := testImage(t, FormatInitramfs)
	replaceFile(t, image, "modules.order", "early nosuch.ko\n")
	v := startVM(t, directBoot(image, "")...)
	v.await(t, "powering off: FATAL: kernel modules: open /modules/nosuch.ko")
	v.awaitEnd(t)
}

// replaceFile adds an archive to the image's: a later one replaces files of an earlier one.
func replaceFile(t *testing.T, image, name, content string) {
	t.Helper()
	tree := newRootfs()
	tree.file(name, 0o644, []byte(content))
	var b bytes.Buffer
	if err := writeCPIO(&b, tree, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(image, "initrd.cpio"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
}

// TestDiskBootsByUEFI has the probe of this package in the disk; that the disk
// boots by UEFI is also shown with the product's agent, by libvirt
// (providers/libvirt TestPodVMFromBirthToDeath/UEFI).
func TestDiskBootsByUEFI(t *testing.T) {
	tier.OnlyAll(t)
	t.Parallel()
	const code, vars = "/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"
	data, err := os.ReadFile(vars)
	if err != nil {
		t.Skipf("%v: run apt-get install ovmf to run this test", err)
	}
	own := filepath.Join(t.TempDir(), "vars.fd")
	if err := os.WriteFile(own, data, 0o600); err != nil {
		t.Fatal(err)
	}
	image := testImage(t, FormatQcow2)
	v := startVM(t, "-M", "q35",
		"-drive", "if=pflash,format=raw,readonly=on,file="+code, "-drive", "if=pflash,format=raw,file="+own,
		"-drive", "if=virtio,format=qcow2,file="+filepath.Join(image, "podvm.qcow2"))
	v.await(t, "PROBE done")
	v.check(t, "container", "in the container as pid 1 on crun <nil>")
}

func TestTwoBuildsAreByteEqual(t *testing.T) {
	t.Parallel()
	needTools(t, "apt-get", "apt", "dpkg-deb", "dpkg", "depmod", "kmod", "qemu-img", "qemu-utils")
	// The guest's own programs, compiled twice.
	image, again := filepath.Join(t.TempDir(), "image"), filepath.Join(t.TempDir(), "elsewhere", "image")
	for _, output := range []string{image, again} {
		// Compute Engine's archive has a gibibyte of zeros, which take the race
		// detector a minute; TestGoogleTarball makes two small ones.
		buildTestImage(t, Options{Output: output, Formats: []string{FormatInitramfs, FormatQcow2, FormatRaw, FormatVHD, FormatOVA}})
	}
	for _, name := range []string{"vmlinux", "vmlinuz", "initrd.cpio", "podvm.raw", "podvm.qcow2", "podvm.vhd", "podvm.ova", "manifest.json"} {
		a, err := wholefile.SHA256(filepath.Join(image, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := wholefile.SHA256(filepath.Join(again, name))
		if err != nil {
			t.Fatal(err)
		}
		if a != b {
			t.Errorf("%s differs", name)
		}
	}
}

func TestDebugImageHasAShell(t *testing.T) {
	tier.OnlyAll(t)
	t.Parallel()
	needTools(t, "apt-get", "apt", "dpkg-deb", "dpkg", "depmod", "kmod", "qemu-system-x86_64", "qemu-system-x86")
	image := buildOwnImage(t, Options{Debug: true})
	v := startVM(t, directBoot(image, "")...)
	v.await(t, "~ # ")
	if _, err := v.stdin.Write([]byte("echo shell says $((6*7))\n")); err != nil {
		t.Fatal(err)
	}
	v.await(t, "shell says 42")
}

func TestTerminationDuringTheBootIsOrderly(t *testing.T) {
	tier.OnlyAll(t) // TestPowerButtonEndsTheVM ends one later
	t.Parallel()
	needTools(t, "apt-get", "apt", "dpkg-deb", "dpkg", "depmod", "kmod", "qemu-system-x86_64", "qemu-system-x86")
	v := startVM(t, directBoot(buildOwnImage(t, Options{Debug: true}), "")...)
	// Without a seed the boot stays here for minutes.
	v.await(t, "no user-data yet")
	v.await(t, "~ # ")
	if _, err := v.stdin.Write([]byte("kill -TERM 1\n")); err != nil {
		t.Fatal(err)
	}
	v.await(t, "powering off: terminated")
	v.awaitEnd(t)
}

// buildOwnImage builds the image that ships, with options of the guest.
func buildOwnImage(t *testing.T, o Options) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	o.Output, o.Cache = filepath.Join(t.TempDir(), "image"), filepath.Join(cache, "outrigger", "podvm")
	o.Formats, o.Log = []string{FormatInitramfs}, t.Logf
	if _, err := Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o.Output
}

func TestBuildErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		opts Options
		want string
	}{
		"no such package":  {Options{Formats: Formats(), KernelPackage: "linux-image-nosuch"}, "apt-get update"},
		"not a package":    {Options{Formats: Formats(), KernelDeb: "/etc/hostname"}, "dpkg-deb"},
		"programs missing": {Options{Formats: Formats(), Binaries: dir}, "has no podvm-init"},
		"unknown format":   {Options{Formats: []string{"vdi"}}, "want one of"},
		"nothing to build": {Options{}, "no format"},
	} {
		t.Run(name, func(t *testing.T) {
			c.opts.Output, c.opts.Cache = filepath.Join(dir, "out"), filepath.Join(dir, "cache")
			if _, err := Build(context.Background(), c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
