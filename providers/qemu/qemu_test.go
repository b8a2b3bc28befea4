// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/kdomanski/iso9660"

	"github.com/outrigger/outrigger/internal/localnet"
	"github.com/outrigger/outrigger/internal/procid"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
)

func parse(t *testing.T, args ...string) (*config.Manager[Config], error) {
	t.Helper()
	m := Manager()
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	m.ParseCmd(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	m.LoadEnv()
	return m, nil
}

func TestFlagWinsOverVariableWinsOverDefault(t *testing.T) {
	t.Setenv("QEMU_TEMPLATE_DIR", "") // puts back what other tests use
	os.Unsetenv("QEMU_TEMPLATE_DIR")
	t.Setenv("QEMU_MEMORY", "1024")
	t.Setenv("QEMU_CPUS", "4")
	t.Setenv("QEMU_SUBNET6", "none")
	t.Setenv("QEMU_DNS", "192.0.2.53, 2001:db8::53")
	t.Setenv("QEMU_ACCEL", "")
	m, err := parse(t, "-qemu-cpus=2", "-qemu-subnet=10.9.0.0/24")
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig()
	want.CPUs, want.Memory = 2, 1024
	want.Subnet, want.Subnet6 = Prefix{netip.MustParsePrefix("10.9.0.0/24")}, Prefix{}
	want.DNS = Addrs{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")}
	comparers := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	prefixes := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	got, err := m.Config()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, comparers, prefixes); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		env  map[string]string
		want []string
	}{
		"variable no number": {env: map[string]string{"QEMU_CPUS": "many"}, want: []string{"QEMU_CPUS", "many"}},
		"variable no prefix": {env: map[string]string{"QEMU_SUBNET": "10.0.0.0"}, want: []string{"QEMU_SUBNET", "10.0.0.0"}},
		"all at once": {
			env:  map[string]string{"QEMU_ACCEL": "fast", "QEMU_MEMORY": "1", "QEMU_PROBE_TIMEOUT": "soon"},
			want: []string{"-qemu-accel", "fast", "-qemu-memory", "QEMU_PROBE_TIMEOUT", "soon"},
		},
		"two ways to boot": {args: []string{"-qemu-disk=/bin/sh", "-qemu-kernel=/bin/sh"}, want: []string{"-qemu-disk"}},
		"TPM and a kernel that is not measured": {
			args: []string{"-qemu-tpm=on", "-qemu-kernel=/bin/sh", "-qemu-initrd=/bin/sh", "-qemu-append=x", "-qemu-templates=always"},
			want: []string{"-qemu-kernel", "-qemu-initrd", "-qemu-append", "-qemu-templates"},
		},
		"TPM and command line": {args: []string{"-qemu-tpm=on", "-qemu-append=x"}, want: []string{"-qemu-append", "--cmdline"}},
		"no such kernel":       {args: []string{"-qemu-kernel=/nonexistent/vmlinux"}, want: []string{"-qemu-kernel", "/nonexistent/vmlinux"}},
		"wrong family":         {args: []string{"-qemu-subnet=fd00::/64"}, want: []string{"-qemu-subnet", "family"}},
		"host bits":            {args: []string{"-qemu-subnet=10.0.0.1/24"}, want: []string{"-qemu-subnet", "10.0.0.0/24"}},
		"bridge name":          {args: []string{"-qemu-bridge=far-too-long-a-name"}, want: []string{"-qemu-bridge"}},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range test.env {
				t.Setenv(key, value)
			}
			m, err := parse(t, append(test.args, "-qemu-state-dir="+t.TempDir())...)
			if err != nil {
				t.Fatal(err)
			}
			_, err = m.NewProvider()
			if !errors.Is(err, provider.ErrInvalidArgument) {
				t.Fatalf("error %v, want invalid argument", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not mention %q", err, want)
				}
			}
		})
	}
	for _, arg := range []string{"-qemu-cpus=many", "-qemu-cpus=0", "-qemu-accel=fast"} {
		if _, err := parse(t, arg); err == nil {
			t.Errorf("%s was taken", arg)
		}
	}
}

func testRecord() *record {
	return &record{
		ID: "podvm-web-12345678", Key: "12345678", UUID: uuid.NewString(), Phase: phaseReady,
		CPUs: 2, Memory: 512, Accel: AccelTCG, Scratch: 10,
		Boot:      boot{Kernel: "/image/vmlinux", Initrd: "/image/initrd.cpio"},
		Interface: "ort0", MAC: "02:6f:74:01:02:03", MTU: 1450,
		Addrs:    []netip.Prefix{netip.MustParsePrefix("192.168.127.2/24"), netip.MustParsePrefix("fd6f:7574:7269::2/64")},
		Gateways: []netip.Addr{netip.MustParseAddr("192.168.127.1"), netip.MustParseAddr("fd6f:7574:7269::1")},
	}
}

func TestSeedIsReadBack(t *testing.T) {
	dns := []netip.Addr{netip.MustParseAddr("192.0.2.53")}
	userData := "#cloud-config\n" + strings.Repeat("# padding\n", 1000)
	image, err := seed(testRecord(), userData, false, dns)
	if err != nil {
		t.Fatal(err)
	}
	label, files := readISO(t, image)
	if label != "cidata" {
		t.Errorf("label %q, want cidata", label)
	}
	want := map[string]string{
		"user-data": userData,
		"meta-data": "instance-id: podvm-web-12345678\nlocal-hostname: podvm-web-12345678\n",
		"network-config": `version: 2
ethernets:
  eth0:
    match:
      macaddress: 02:6f:74:01:02:03
    set-name: eth0
    mtu: 1450
    dhcp4: false
    addresses:
    - 192.168.127.2/24
    - fd6f:7574:7269::2/64
    routes:
    - to: default
      via: 192.168.127.1
    - to: default
      via: fd6f:7574:7269::1
    nameservers:
      addresses:
      - 192.0.2.53
`,
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("seed (-want +got):\n%s", diff)
	}
}

func readISO(t *testing.T, data []byte) (string, map[string]string) {
	t.Helper()
	image, err := iso9660.OpenImage(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	label, err := image.Label()
	if err != nil {
		t.Fatal(err)
	}
	root, err := image.RootDir()
	if err != nil {
		t.Fatal(err)
	}
	children, err := root.GetChildren()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, child := range children {
		content, err := io.ReadAll(child.Reader())
		if err != nil {
			t.Fatal(err)
		}
		files[strings.ToLower(strings.TrimRight(child.Name(), "."))] = string(content)
	}
	return label, files
}

func TestSeedForDHCPHasNoIPv4Address(t *testing.T) {
	eth := networkOf(testRecord(), true, nil).Ethernets[guestInterface]
	if !eth.DHCP4 || !slices.Equal(eth.Addresses, []string{"fd6f:7574:7269::2/64"}) || len(eth.Routes) != 1 {
		t.Errorf("network %+v, want DHCP and the IPv6 address alone", eth)
	}
}

func TestArguments(t *testing.T) {
	r := testRecord()
	line := strings.Join(arguments(r, false), " ")
	for _, want := range []string{
		"-machine q35 -kernel", "-accel tcg,tb-size=256 -cpu max,-erms,-fsrm,-aes -smp 2 -m 512",
		"-kernel /image/vmlinux -initrd /image/initrd.cpio",
		"cryptomgr.notests no_timer_check highres=off GODEBUG=cpu.avx2=off ", "mac=02:6f:74:01:02:03", "ifname=ort0", "serial=cidata", "serial=scratch", "romfile=",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("command line lacks %q: %s", want, line)
		}
	}
	r.Accel, r.Scratch, r.Boot = AccelKVM, 0, boot{Disk: "/image/a,b.qcow2", Firmware: "/fw/CODE,1.fd"}
	line = strings.Join(arguments(r, true), " ")
	for _, never := range []string{"mitigations=off", "-kernel", "serial=scratch"} {
		if strings.Contains(line, never) {
			t.Errorf("command line has %q: %s", never, line)
		}
	}
	for _, want := range []string{"-cpu host", "vhost=on", "file=/fw/CODE,,1.fd", "serial=root"} {
		if !strings.Contains(line, want) {
			t.Errorf("command line lacks %q: %s", want, line)
		}
	}
}

func TestKernelCommandLineOfAppend(t *testing.T) {
	r := testRecord()
	r.Append = "debug my=word"
	args := arguments(r, false)
	if got := args[slices.Index(args, "-append")+1]; !strings.HasSuffix(got, " debug my=word") {
		t.Errorf("kernel command line %q", got)
	}
}

// openUnit is a provider that makes no VM.
func openUnit(t *testing.T) *Provider {
	t.Helper()
	image := t.TempDir()
	for name, content := range map[string]string{
		"vmlinux": "\x7fELF", "initrd.cpio": "070701", "disk.qcow2": "QFI\xfb", "notes.txt": "hello, world",
	} {
		if err := os.WriteFile(filepath.Join(image, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := DefaultConfig()
	cfg.StateDir, cfg.Accel, cfg.Binary = filepath.Join(t.TempDir(), "qemu"), AccelTCG, "true"
	cfg.Kernel, cfg.Initrd = filepath.Join(image, "vmlinux"), filepath.Join(image, "initrd.cpio")
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Teardown() })
	return p
}

func TestSizes(t *testing.T) {
	p := openUnit(t)
	for name, test := range map[string]struct {
		spec         provider.InstanceTypeSpec
		cpus, memory int64
		err          error
	}{
		"defaults":       {cpus: 1, memory: 512},
		"numbers":        {spec: provider.InstanceTypeSpec{VCPUs: 3, Memory: 700}, cpus: 3, memory: 700},
		"a type":         {spec: provider.InstanceTypeSpec{InstanceType: "2x1024", VCPUs: 9, Memory: 9}, cpus: 2, memory: 1024},
		"unknown type":   {spec: provider.InstanceTypeSpec{InstanceType: "huge"}, err: provider.ErrInvalidArgument},
		"too little":     {spec: provider.InstanceTypeSpec{Memory: 10}, err: provider.ErrInvalidArgument},
		"negative":       {spec: provider.InstanceTypeSpec{VCPUs: -1}, err: provider.ErrInvalidArgument},
		"more than host": {spec: provider.InstanceTypeSpec{Memory: 1 << 40}, err: provider.ErrCapacity},
		"GPU":            {spec: provider.InstanceTypeSpec{GPUs: 1}, err: provider.ErrInvalidArgument},
		"GPU model":      {spec: provider.InstanceTypeSpec{GPU: "nvidia-l4"}, err: provider.ErrInvalidArgument},
		"foreign arch":   {spec: provider.InstanceTypeSpec{Arch: "s390x"}, err: provider.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			cpus, memory, err := p.size(test.spec)
			if cpus != test.cpus || memory != test.memory || !errors.Is(err, test.err) {
				t.Errorf("%d, %d, %v; want %d, %d, %v", cpus, memory, err, test.cpus, test.memory, test.err)
			}
		})
	}
	types, err := p.InstanceTypes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range types {
		if cpus, memory, err := sizeOf(typ.Name); err != nil || cpus != typ.VCPUs || memory != typ.Memory {
			t.Errorf("type %s of the catalogue: %d, %d, %v", typ.Name, cpus, memory, err)
		}
	}
}

// TestGuestThatCannotBoot: with less memory than its initramfs needs a guest
// panics or powers off, on its console alone.
func TestGuestThatCannotBoot(t *testing.T) {
	p := openUnit(t)
	if err := os.Truncate(p.cfg.Initrd, 30<<20); err != nil {
		t.Fatal(err)
	}
	const least = kernelMemory + 90
	for memory, want := range map[int64]string{least - 1: "at least 138", least: "is for QEMU"} {
		p.cfg.Binary = "/nonexistent/is for QEMU"
		_, err := p.CreateInstance(t.Context(), "pod", "key", cloudinit.Raw("x"), provider.InstanceTypeSpec{Memory: memory})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a pod with %d MiB: error %v, want %q", memory, err, want)
		}
	}
	cfg := p.cfg
	cfg.Memory, cfg.StateDir = least-1, filepath.Join(t.TempDir(), "qemu")
	_, err := New(cfg)
	if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(fmt.Sprint(err), "-qemu-memory") || !strings.Contains(err.Error(), "at least 138") {
		t.Errorf("error %v, want one that names -qemu-memory and 138", err)
	}
}

func TestImagesOfPods(t *testing.T) {
	p := openUnit(t)
	dir := filepath.Dir(p.cfg.Initrd)
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]error{
		"": nil, "initrd.cpio": nil, filepath.Join(dir, "disk.qcow2"): nil,
		"missing.qcow2": provider.ErrNotFound, "/nonexistent": provider.ErrNotFound,
		"/etc/passwd": provider.ErrInvalidArgument, "link": provider.ErrInvalidArgument,
		"../../../../../../etc/passwd": provider.ErrInvalidArgument, "notes.txt": provider.ErrInvalidArgument,
	} {
		got, err := p.bootFrom(image)
		if !errors.Is(err, want) || want != nil && !errors.Is(err, provider.ErrInvalidArgument) {
			t.Errorf("image %q: %+v, %v; want error %v", image, got, err, want)
		}
	}
	if got, err := p.bootFrom("disk.qcow2"); err != nil || got.Disk == "" || got.Kernel != "" {
		t.Errorf("disk image: %+v, %v", got, err)
	}
}

func TestImageInAFolderOfItsOwnBringsItsKernel(t *testing.T) {
	p := openUnit(t)
	own := filepath.Join(filepath.Dir(p.cfg.Initrd), "confidential")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, from string) {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(own, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("initrd.cpio", p.cfg.Initrd)
	if got, err := p.bootFrom("confidential/initrd.cpio"); err != nil || got.Kernel != p.cfg.Kernel {
		t.Errorf("without a kernel: %+v, %v", got, err)
	}
	write("vmlinux", p.cfg.Kernel)
	if got, err := p.bootFrom("confidential/initrd.cpio"); err != nil || got.Kernel != filepath.Join(own, "vmlinux") {
		t.Errorf("with a kernel: %+v, %v", got, err)
	}
}

func TestMissingImageSaysHowToBuildIt(t *testing.T) {
	p := openUnit(t)
	p.cfg.Kernel, p.cfg.Initrd = "", ""
	_, err := p.configuredBoot()
	if err == nil {
		t.Skipf("an image is installed on this machine; move %s away to run this", systemImageDir)
	}
	if !errors.Is(err, provider.ErrNotFound) || !strings.Contains(err.Error(), "make podvm") {
		t.Errorf("error %v, want not found and how to build it", err)
	}
}

func TestClaimTakesTheNextNameWhenOneIsTaken(t *testing.T) {
	s := store{t.TempDir()}
	name := "podvm-" + strings.Repeat("x", 49) + "-1234567"
	var ids []string
	for n := range 3 {
		r := testRecord()
		r.Key = fmt.Sprint("key", n)
		if err := s.instances().claim(r, name); err != nil {
			t.Fatal(err)
		}
		if !validID.MatchString(r.ID) {
			t.Errorf("id %q is not a DNS label", r.ID)
		}
		ids = append(ids, r.ID)
		got, err := s.instances().byKey(r.Key)
		if err != nil || got == nil || got.ID != r.ID {
			t.Errorf("by key: %+v, %v; want %s", got, err, r.ID)
		}
	}
	if ids[0] != name || ids[1] == ids[0] || ids[2] == ids[1] {
		t.Errorf("ids %v", ids)
	}
	for _, id := range ids {
		if err := s.instances().remove(id); err != nil {
			t.Fatal(err)
		}
	}
	s.tidy()
	if _, err := os.Stat(s.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("state folder is left: %v", err)
	}
}

func TestTidyRemovesWhatKilledProcessesLeft(t *testing.T) {
	s := store{t.TempDir()}
	for _, name := range []string{newPrefix + s.instances().hash("a"), gonePrefix + "podvm-b", "podvm-c"} {
		if err := os.MkdirAll(filepath.Join(s.instances().dir(), name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.tidy()
	entries, err := os.ReadDir(s.instances().dir())
	if err != nil || len(entries) != 1 || entries[0].Name() != "podvm-c" {
		t.Errorf("left %v, %v; want podvm-c alone", entries, err)
	}
}

func TestDamagedRecordIsAnErrorNotANewInstance(t *testing.T) {
	p := openUnit(t)
	if err := p.store.instances().claim(testRecord(), "podvm-a"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.store.instances().record("podvm-a"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.CreateInstance(t.Context(), "pod", "12345678", nil, provider.InstanceTypeSpec{}); err == nil || !strings.Contains(err.Error(), "podvm-a") {
		t.Errorf("create: %v, want an error that names the damaged file", err)
	}
}

func TestDeleteAndGetOfNothing(t *testing.T) {
	p := openUnit(t)
	for _, id := range []string{"podvm-none", "../../etc", ".", "UPPER"} {
		if err := p.DeleteInstance(t.Context(), id); err != nil {
			t.Errorf("delete %q: %v", id, err)
		}
		if _, err := p.GetInstance(t.Context(), id); !errors.Is(err, provider.ErrNotFound) {
			t.Errorf("get %q: %v", id, err)
		}
	}
}

func TestClasses(t *testing.T) {
	for cause, want := range map[error]error{
		&fs.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}: provider.ErrCapacity,
		&fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}:  provider.ErrPermissionDenied,
		fmt.Errorf("tap: %w", syscall.EPERM):                        provider.ErrPermissionDenied,
		fmt.Errorf("net: %w", localnet.ErrFull):                     provider.ErrCapacity,
		fmt.Errorf("net: %w", localnet.ErrClash):                    provider.ErrInvalidArgument,
		fmt.Errorf("gone: %w", context.Canceled):                    provider.ErrUnavailable,
		fmt.Errorf("mine: %w", provider.ErrQuota):                   provider.ErrQuota,
		errors.New("?"): provider.ErrUnknown,
	} {
		if got := provider.Class(classify(cause)); got != want {
			t.Errorf("%v is %v, want %v", cause, got, want)
		}
	}
	if classify(nil) != nil {
		t.Error("nil became an error")
	}
}

func TestQEMUIsFoundByItsArgument(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	// The kernel tells the parent of the exec before it shows the new arguments.
	find := func() procid.ID { return findByArgument(func(arg string) bool { return arg == "1000" }) }
	found := find()
	for began := time.Now(); found.PID == 0 && time.Since(began) < 10*time.Second; {
		found = find()
	}
	if !found.Alive() {
		t.Errorf("find by argument: %+v", found)
	}
}

func TestConsoleIsTrimmed(t *testing.T) {
	path := filepath.Join(t.TempDir(), consoleName)
	text := bytes.Repeat([]byte("0123456789abcdef"), (consoleLimit+1<<20)/16)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := trimConsole(path); err != nil {
		t.Fatal(err)
	}
	var info syscall.Stat_t
	if err := syscall.Stat(path, &info); err != nil || info.Blocks*512 > consoleKept+1<<20 {
		t.Errorf("%d bytes in use (%v), want about %d", info.Blocks*512, err, consoleKept)
	}
	if got, err := tail(path, consoleKept); err != nil || !bytes.Equal(got, text[len(text)-consoleKept:]) {
		t.Errorf("the end of the console changed (%v)", err)
	}
}

func (r *record) mac() net.HardwareAddr {
	mac, _ := net.ParseMAC(r.MAC)
	return mac
}

func TestDHCPAnswersOnlyOurs(t *testing.T) {
	r := testRecord()
	ports := []localnet.Port{{MAC: r.mac(), Addrs: r.Addrs, Gateways: r.Gateways, MTU: 1450}}
	dns := []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")}
	discover, err := dhcpv4.NewDiscovery(r.mac())
	if err != nil {
		t.Fatal(err)
	}
	offer, err := dhcpAnswer(discover, ports, dns)
	if err != nil {
		t.Fatal(err)
	}
	if offer.MessageType() != dhcpv4.MessageTypeOffer || offer.YourIPAddr.String() != "192.168.127.2" ||
		offer.Router()[0].String() != "192.168.127.1" || offer.IPAddressLeaseTime(0) != math.MaxUint32*time.Second || len(offer.DNS()) != 1 {
		t.Errorf("offer: %s", offer.Summary())
	}
	for wanted, kind := range map[string]dhcpv4.MessageType{
		"192.168.127.2": dhcpv4.MessageTypeAck, "192.168.127.9": dhcpv4.MessageTypeNak,
	} {
		request, err := dhcpv4.NewRequestFromOffer(offer, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(wanted))))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := dhcpAnswer(request, ports, dns)
		if err != nil || answer.MessageType() != kind {
			t.Errorf("request for %s: %v, %v; want %s", wanted, answer, err, kind)
		}
	}
	stranger, _ := dhcpv4.NewDiscovery(net.HardwareAddr{2, 0, 0, 0, 0, 9})
	if answer, err := dhcpAnswer(stranger, ports, dns); answer != nil || err != nil {
		t.Errorf("a stranger got %v, %v", answer, err)
	}
}
