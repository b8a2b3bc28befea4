// SPDX-License-Identifier: Apache-2.0

//go:build integration

package qemu

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

// victimVar makes the test binary a process that creates an instance, to be killed.
const victimVar = "QEMU_TEST_VICTIM_CONFIG"

func TestMain(m *testing.M) {
	if text := os.Getenv(victimVar); text != "" {
		if instanceID := os.Getenv(diskVictimVar); instanceID != "" {
			diskVictim(text, instanceID)
		}
		victim(text)
		return
	}
	testns.Main(m)
}

// bootWait is ten times what a guest takes to boot on an idle machine.
const bootWait = 60 * time.Second

// guest returns the folder of the pod VM image.
func guest(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("OUTRIGGER_PODVM_DIR")
	if dir == "" {
		t.Skip("no pod VM image; run: make podvm && OUTRIGGER_PODVM_DIR=$PWD/bin/podvm go test -tags integration ./providers/qemu")
	}
	return dir
}

func testConfig(t testing.TB, change ...func(*Config)) Config {
	t.Helper()
	testns.RequireRoot(t)
	dir := guest(t)
	cfg := DefaultConfig()
	cfg.Kernel, cfg.Initrd = filepath.Join(dir, "vmlinux"), filepath.Join(dir, "initrd.cpio")
	cfg.Accel, cfg.StateDir = AccelTCG, filepath.Join(t.TempDir(), "qemu")
	cfg.Memory = 256
	cfg.TemplateDir = cmp.Or(os.Getenv("QEMU_TEMPLATE_DIR"), cfg.TemplateDir)
	for _, c := range change {
		c(&cfg)
	}
	return cfg
}

// open returns a provider whose every trace must be gone in the end.
func open(t testing.TB, cfg Config) *Provider {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		deleteAll(t, p)
		if err := p.Teardown(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, cfg)
	})
	return p
}

func deleteAll(t testing.TB, p *Provider) {
	t.Helper()
	records, err := p.store.instances().list()
	if err != nil {
		t.Error(err)
	}
	for _, r := range records {
		if err := p.DeleteInstance(context.Background(), r.ID); err != nil {
			t.Errorf("delete %s: %v", r.ID, err)
		}
	}
}

func nothingLeft(t testing.TB, cfg Config) {
	t.Helper()
	if cfg.TPM == TPMOn { // what stays, as documented
		if err := errors.Join(os.RemoveAll(filepath.Join(cfg.StateDir, TPMAuthority)), os.Remove(cfg.StateDir)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	if _, err := os.Stat(cfg.StateDir); !errors.Is(err, os.ErrNotExist) {
		var left []string
		filepath.WalkDir(cfg.StateDir, func(path string, _ os.DirEntry, _ error) error {
			left = append(left, path)
			return nil
		})
		t.Errorf("state folder is left: %v", left)
	}
	if _, err := netlink.LinkByName(cfg.Bridge); err == nil {
		t.Errorf("bridge %s is left", cfg.Bridge)
	}
	if n := countQEMU(t); n != 0 {
		t.Errorf("%d QEMU processes are left", n)
	}
	if n := countProcesses(t, "swtpm"); n != 0 {
		t.Errorf("%d processes of swtpm are left", n)
	}
}

// countQEMU counts those of this PID namespace, which has only ours.
func countQEMU(t testing.TB) int {
	t.Helper()
	return countProcesses(t, "qemu-system")
}

func countProcesses(t testing.TB, prefix string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && strings.HasPrefix(filepath.Base(strings.Split(string(line), "\x00")[0]), prefix) {
			n++
		}
	}
	return n
}

const userData = cloudinit.Raw("#cloud-config\nwrite_files: []\n")

func create(t testing.TB, p *Provider, key string) *provider.Instance {
	t.Helper()
	tags := map[string]string{provider.TagCluster: "test", provider.TagKey: key}
	i, err := p.CreateInstance(t.Context(), "pod", key, userData, provider.InstanceTypeSpec{Tags: tags})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// awaitTCP waits until the guest's kernel answers, be it with a refusal.
func awaitTCP(t testing.TB, p *Provider, i *provider.Instance) {
	t.Helper()
	deadline := time.Now().Add(bootWait)
	addr := netip.AddrPortFrom(i.IPs[0], 15150).String()
	for time.Now().Before(deadline) {
		conn, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err == nil {
			conn.Close()
			return
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
	}
	console, err := p.Console(context.Background(), i.ID, 4096)
	t.Fatalf("no answer from %s; console (%v):\n%s", addr, err, console)
}

func awaitConsole(t testing.TB, p *Provider, i *provider.Instance, want string) {
	t.Helper()
	awaitConsoleFor(t, p, i, want, bootWait)
}

func awaitConsoleFor(t testing.TB, p *Provider, i *provider.Instance, want string, wait time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(wait); ; time.Sleep(100 * time.Millisecond) {
		console, err := p.Console(t.Context(), i.ID, 1<<16)
		if strings.Contains(string(console), want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the console does not say %q (%v):\n%s", want, err, console)
		}
	}
}

// TestInstanceFromBirthToDeath has the least memory there can be.
func TestInstanceFromBirthToDeath(t *testing.T) {
	cfg := testConfig(t, func(c *Config) { c.Memory = leastMemory(boot{Initrd: c.Initrd}) })
	p := open(t, cfg)
	begin := time.Now()
	i := create(t, p, "sandbox-1")
	t.Logf("CreateInstance returned after %v", time.Since(begin))
	awaitTCP(t, p, i)
	t.Logf("TCP answer %v after the call", time.Since(begin))
	awaitConsole(t, p, i, "serving the agent protocol")

	if console, err := p.Console(t.Context(), i.ID, 64); err != nil || len(console) == 0 || len(console) > 64 {
		t.Errorf("console: %d bytes, %v; want 1 to 64", len(console), err)
	}
	// A second process sees the same, and removes it.
	other, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Teardown()
	got, err := other.GetInstance(t.Context(), i.ID)
	if err != nil || got.Key != "sandbox-1" || got.State != provider.StateRunning || got.IPs[0] != i.IPs[0] {
		t.Errorf("get: %+v, %v", got, err)
	}
	list, err := other.ListInstances(t.Context(), map[string]string{provider.TagCluster: "test"})
	if err != nil || len(list) != 1 || list[0].ID != i.ID {
		t.Errorf("list: %+v, %v", list, err)
	}
	if list, err := other.ListInstances(t.Context(), map[string]string{provider.TagCluster: "others"}); err != nil || len(list) != 0 {
		t.Errorf("list of others: %+v, %v", list, err)
	}
	begin = time.Now()
	for range 2 {
		if err := other.DeleteInstance(t.Context(), i.ID); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("deleted in %v", time.Since(begin))
	if _, err := p.GetInstance(t.Context(), i.ID); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("get after delete: %v, want not found", err)
	}
	nothingLeft(t, cfg)
}

func TestSecretsAreForTheOwnerOnly(t *testing.T) {
	p := open(t, testConfig(t))
	i := create(t, p, "sandbox-1")
	for _, path := range []string{p.store.dir, p.store.instances().dir(), p.store.folder(i.ID)} {
		checkMode(t, path, 0o700)
	}
	for _, name := range []string{"instance.json", seedName, scratchName, consoleName, outputName} {
		checkMode(t, p.store.file(i.ID, name), 0o600)
	}
}

func checkMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Error(err)
	} else if info.Mode().Perm() != want {
		t.Errorf("%s has mode %o, want %o", path, info.Mode().Perm(), want)
	}
}

func TestOneInstanceForOneKey(t *testing.T) {
	cfg := testConfig(t)
	providers := []*Provider{open(t, cfg)}
	second, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Teardown()
	providers = append(providers, second)

	ids := make([]string, 6)
	var wg sync.WaitGroup
	for n := range ids {
		wg.Go(func() {
			i, err := providers[n%2].CreateInstance(t.Context(), "pod", "sandbox-1", userData, provider.InstanceTypeSpec{})
			if err != nil {
				t.Error(err)
				return
			}
			ids[n] = i.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("one key, instances %v", ids)
		}
	}
	if n := countQEMU(t); n != 1 {
		t.Errorf("%d QEMU processes, want 1", n)
	}
	// The name has only the first eight characters of the key.
	other := create(t, providers[0], "sandbox-2")
	if other.ID == ids[0] || other.IPs[0].String() == "" {
		t.Errorf("another key got the same instance %s", other.ID)
	}
}

func TestPowerOffAndOn(t *testing.T) {
	p := open(t, testConfig(t))
	i := create(t, p, "sandbox-1")
	for range 2 {
		if err := p.PowerOff(t.Context(), i.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := p.GetInstance(t.Context(), i.ID); err != nil || got.State != provider.StateStopped {
		t.Errorf("after power off: %+v, %v", got, err)
	}
	if n := countQEMU(t); n != 0 {
		t.Errorf("%d QEMU processes, want none", n)
	}
	for range 2 {
		if err := p.PowerOn(t.Context(), i.ID); err != nil {
			t.Fatal(err)
		}
	}
	awaitTCP(t, p, i)
	if n := countQEMU(t); n != 1 {
		t.Errorf("%d QEMU processes, want 1", n)
	}
	if err := p.PowerOff(t.Context(), "podvm-none"); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("power off of none: %v", err)
	}
}

func TestGuestAsksForItsAddress(t *testing.T) {
	cfg := testConfig(t, func(c *Config) { c.Addressing = AddressingDHCP })
	// The process that answers is not the one that creates.
	server, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Teardown()
	maker := cfg
	maker.Addressing = AddressingStatic
	p := open(t, maker)
	p.cfg.Addressing = AddressingDHCP
	i := create(t, p, "sandbox-1")
	awaitTCP(t, p, i)
}

func TestKernelThatIsNone(t *testing.T) {
	cfg := testConfig(t, func(c *Config) {
		c.Kernel = filepath.Join(t.TempDir(), "vmlinux")
		if err := os.WriteFile(c.Kernel, []byte(strings.Repeat("no kernel ", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	p := open(t, cfg)
	_, err := p.CreateInstance(t.Context(), "pod", "sandbox-1", userData, provider.InstanceTypeSpec{})
	if err == nil || !strings.Contains(err.Error(), "QEMU ended while it started: ") {
		t.Errorf("error %v, want what QEMU said", err)
	}
	nothingLeft(t, cfg)
}

func TestCallerGivesUp(t *testing.T) {
	cfg := testConfig(t)
	p := open(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := p.CreateInstance(ctx, "pod", "sandbox-1", userData, provider.InstanceTypeSpec{})
	if err != nil && !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("error %v, want unavailable", err)
	}
	if err != nil {
		nothingLeft(t, cfg)
	}
}

// victim creates an instance again and again, deleting it in between.
func victim(text string) {
	var cfg Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		panic(err)
	}
	p, err := New(cfg)
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	for {
		i, err := p.CreateInstance(context.Background(), "pod", "sandbox-1", userData, provider.InstanceTypeSpec{})
		if err == nil {
			err = p.DeleteInstance(context.Background(), i.ID)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func TestMakerKilledAtAnyInstant(t *testing.T) {
	cfg := testConfig(t)
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for round := range tier.Rounds(t, 6, 12) {
		p := open(t, cfg)
		killAfter(t, string(text), time.Duration(round*31)*time.Millisecond)
		i := create(t, p, "sandbox-1")
		if n := countQEMU(t); n != 1 {
			t.Fatalf("round %d: %d QEMU processes, want 1", round, n)
		}
		if again := create(t, p, "sandbox-1"); again.ID != i.ID {
			t.Errorf("round %d: one key, instances %s and %s", round, i.ID, again.ID)
		}
		if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
			t.Fatal(err)
		}
		nothingLeft(t, cfg)
	}
}

// killAfter runs a victim that long and kills it.
func killAfter(t *testing.T, config string, after time.Duration) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), victimVar+"="+config)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	<-time.After(after) // the instant, not a wait
	if err := cmd.Process.Kill(); err != nil {
		t.Fatalf("the victim ended by itself: %v", err)
	}
	cmd.Wait()
}

func TestProbe(t *testing.T) {
	cfg := testConfig(t, func(c *Config) { c.ProbeTimeout = bootWait })
	p := open(t, cfg)
	if err := p.probeGuest(t.Context(), AccelTCG); err != nil {
		t.Errorf("the probe's guest does not even run in emulation: %v", err)
	}
	p.cfg.ProbeTimeout = 5 * time.Second
	if err := p.probeGuest(t.Context(), AccelKVM); (err == nil) && kvmUnusable() != "" {
		t.Errorf("KVM is impossible (%s) and its guest ran", kvmUnusable())
	}
	p.cfg.Kernel, p.cfg.Initrd, p.cfg.Disk, p.cfg.Firmware = "", "", os.DevNull, os.DevNull
	if err := p.probeGuest(t.Context(), AccelTCG); err != nil {
		t.Errorf("boot sector: %v", err)
	}
}

func TestConfigVerifier(t *testing.T) {
	cfg := testConfig(t)
	if err := open(t, cfg).ConfigVerifier(); err != nil {
		t.Errorf("good configuration: %v", err)
	}
	nothingLeft(t, cfg)
	p := open(t, testConfig(t, func(c *Config) { c.Binary, c.Memory = "qemu-system-none", 1<<24 }))
	p.cfg.Kernel = "/nonexistent/vmlinux"
	err := p.ConfigVerifier()
	for _, want := range []string{"apt-get install qemu-system-x86", "/nonexistent/vmlinux", "MiB of memory"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not mention %q", err, want)
		}
	}
}

func TestFullDisk(t *testing.T) {
	cfg := testConfig(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(disk, unix.MNT_DETACH)
	cfg.StateDir = filepath.Join(disk, "qemu")
	p := open(t, cfg)
	_, err := p.CreateInstance(t.Context(), "pod", "sandbox-1", userData, provider.InstanceTypeSpec{})
	if !errors.Is(err, provider.ErrCapacity) || !strings.Contains(err.Error(), cfg.StateDir) {
		t.Errorf("error %v, want no capacity and the path", err)
	}
	nothingLeft(t, cfg)
}

func TestDeletionOnAFullDisk(t *testing.T) {
	cfg := testConfig(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=16m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(disk, unix.MNT_DETACH)
	cfg.StateDir = filepath.Join(disk, "qemu")
	p := open(t, cfg)
	i := create(t, p, "sandbox-1")
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 16<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, cfg)
}

func TestConsoleTellsWhyQEMUEnded(t *testing.T) {
	p := open(t, testConfig(t))
	i := create(t, p, "sandbox-1")
	if err := p.PowerOff(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	const said = "qemu: no more\n"
	if err := os.WriteFile(p.store.file(i.ID, outputName), []byte(said), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{5, int64(len(said))} {
		if got, err := p.Console(t.Context(), i.ID, limit); err != nil || string(got) != said[len(said)-int(limit):] {
			t.Errorf("last %d bytes: %q, %v", limit, got, err)
		}
	}
}

func TestPowerOnAfterAStarterWasKilled(t *testing.T) {
	p := open(t, testConfig(t))
	i := create(t, p, "sandbox-1")
	r, err := p.existing(i.ID)
	if err != nil {
		t.Fatal(err)
	}
	r.Process = process{}
	if err := p.store.instances().save(r); err != nil {
		t.Fatal(err)
	}
	if err := p.PowerOn(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	if n := countQEMU(t); n != 1 {
		t.Errorf("%d QEMU processes, want 1", n)
	}
}

func TestDiskBoot(t *testing.T) {
	tier.OnlyAll(t) // providers/libvirt boots this disk, and its arguments are compared in unit tests
	disk := filepath.Join(guest(t), "podvm.qcow2")
	if err := errors.Join(openable(disk, os.O_RDONLY), openable(DefaultConfig().Firmware, os.O_RDONLY)); err != nil {
		t.Skipf("%v; run: make podvm, and apt-get install ovmf", err)
	}
	cfg := testConfig(t, func(c *Config) {
		c.Kernel, c.Initrd, c.Disk, c.Memory = "", "", disk, 512
	})
	p := open(t, cfg)
	awaitTCP(t, p, create(t, p, "sandbox-1"))
}

func TestOrdinaryUserIsToldWhatIsMissing(t *testing.T) {
	cfg := testConfig(t)
	home, err := os.MkdirTemp("/tmp", "qemu-user-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	const nobody = 65534
	if err := os.Chown(home, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(home, "qemu.test")
	data, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(binary, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.StateDir, cfg.Kernel, cfg.Initrd = filepath.Join(home, "state"), "/proc/self/exe", "/proc/self/exe"
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env = []string{victimVar + "=" + string(text), "PATH=" + os.Getenv("PATH")}
	cmd.Dir = home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "permission denied") || !strings.Contains(string(out), "CAP_NET_ADMIN") {
		t.Errorf("an ordinary user got %v:\n%s", err, out)
	}
	if _, err := os.Stat(cfg.StateDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("state folder is left (%v)", err)
	}
}
