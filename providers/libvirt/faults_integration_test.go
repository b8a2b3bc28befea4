// SPDX-License-Identifier: Apache-2.0

//go:build integration

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/libvirtd"
	"github.com/outrigger/outrigger/test/tier"
)

func TestDaemonGoneAndBack(t *testing.T) {
	d := start(t, libvirtd.Options{})
	p := connect(t, testConfig(d))
	first := create(t, p, "first")
	d.Kill(t)

	_, err := tryCreate(t.Context(), p, "second")
	wantError(t, err, provider.ErrUnavailable, d.Socket, "LIBVIRT_URI")
	wantError(t, p.DeleteInstance(t.Context(), first.ID), provider.ErrUnavailable, d.Socket)
	_, err = p.ListInstances(t.Context(), map[string]string{provider.TagCluster: "test"})
	wantError(t, err, provider.ErrUnavailable, d.Socket)

	d.Restart(t)
	if got, err := p.GetInstance(t.Context(), first.ID); err != nil || got.State != provider.StateRunning {
		t.Errorf("the instance after the daemon's restart: %+v, %v", got, err)
	}
	if again := create(t, p, "first"); again.ID != first.ID {
		t.Errorf("one key, instances %s and %s", first.ID, again.ID)
	}
	second := create(t, p, "second")
	remove(t, p, first.ID)
	remove(t, p, second.ID)
}

// TestDaemonThatHangs holds nobody longer than the caller wants to wait.
func TestDaemonThatHangs(t *testing.T) {
	d := start(t, libvirtd.Options{})
	cfg := testConfig(d)
	connected, fresh := connect(t, cfg), connect(t, cfg)
	i := create(t, connected, "sandbox-1")
	thaw := d.Freeze(t)
	for _, p := range []*Provider{connected, fresh} {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := tryCreate(ctx, p, "sandbox-2")
		wantError(t, err, provider.ErrUnavailable)
		wantError(t, p.DeleteInstance(ctx, i.ID), provider.ErrUnavailable)
		cancel()
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("the calls took %v", took)
		}
	}
	thaw()
	for _, p := range []*Provider{connected, fresh} {
		remove(t, p, create(t, p, "sandbox-2").ID)
	}
	remove(t, connected, i.ID)
}

// TestConnectionBreaksMidCall breaks it at points all over a creation and a
// deletion: the call fails as unavailable or not at all, and the same call
// again does what was asked.
func TestConnectionBreaksMidCall(t *testing.T) {
	d := start(t, libvirtd.Options{})
	proxy := d.Proxy(t)
	cfg := testConfig(d, func(c *Config) { c.URI = proxy.URI })
	creation, deletion := replyBytes(t, cfg, proxy)
	t.Logf("replies: %d bytes for a creation, %d for a deletion", creation, deletion)
	points := int64(tier.Rounds(t, 3, 9))
	failed := 0
	for n := range points {
		p := connect(t, cfg)
		key := fmt.Sprint("cut-", n)
		proxy.CutAfter(creation * n / points)
		first, err := tryCreate(t.Context(), p, key)
		if failed += wantRetryable(t, err); err == nil {
			t.Logf("creation survived a cut after %d bytes", creation*n/points)
		}
		proxy.CutAfter(-1)
		i := create(t, p, key)
		if first != nil && first.ID != "" && first.ID != i.ID {
			t.Errorf("one key, instances %s and %s", first.ID, i.ID)
		}
		proxy.CutAfter(deletion * n / points)
		failed += wantRetryable(t, p.DeleteInstance(t.Context(), i.ID))
		proxy.CutAfter(-1)
		remove(t, p, i.ID)
		d.WantNothing(t)
	}
	if failed == 0 {
		t.Error("no call failed: nothing was cut")
	}
}

func wantRetryable(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	wantError(t, err, provider.ErrUnavailable, "LIBVIRT_URI")
	return 1
}

// replyBytes measures how much the daemon says.
func replyBytes(t *testing.T, cfg Config, proxy *libvirtd.Proxy) (creation, deletion int64) {
	t.Helper()
	p := connect(t, cfg)
	begin := proxy.Told()
	i := create(t, p, "measured")
	creation = proxy.Told() - begin
	remove(t, p, i.ID)
	return creation, proxy.Told() - begin - creation
}

// TestDaemonKilledMidCall: what it had begun is finished after its return.
func TestDaemonKilledMidCall(t *testing.T) {
	d := start(t, libvirtd.Options{})
	p := connect(t, testConfig(d))
	for round := range tier.Rounds(t, 2, 4) {
		key := fmt.Sprint("killed-", round)
		done := make(chan error, 1)
		go func() {
			_, err := tryCreate(t.Context(), p, key)
			done <- err
		}()
		<-time.After(time.Duration(round) * 100 * time.Millisecond) // the instant, not a wait
		d.Kill(t)
		wantRetryable(t, <-done)
		d.Restart(t)
		i, err := tryCreate(t.Context(), p, key)
		if err != nil && strings.Contains(err.Error(), "remove the domain's file from /run/libvirt/qemu") {
			t.Log("libvirtd was killed before it knew QEMU's process: ", err)
			d.Kill(t)
			if err := os.Remove(d.Path("run/qemu/podvm-pod-" + key + ".xml")); err != nil {
				t.Fatal(err)
			}
			d.Restart(t)
			i, err = tryCreate(t.Context(), p, key)
		}
		if err != nil {
			t.Fatal(err)
		}
		remove(t, p, i.ID)
		d.WantNothing(t)
	}
}

// TestPoolFull: the disk, and then only the seed, does not fit.
func TestPoolFull(t *testing.T) {
	d := start(t, libvirtd.Options{PoolSize: 40 << 20})
	p := connect(t, testConfig(d))
	filler := d.Path("pool/filler")
	defer empty(t, d, filler)
	big := cloudinit.Raw("#cloud-config\nwrite_files: []\n#" + strings.Repeat("x", 600<<10))
	for _, tc := range []struct {
		name string
		free int64
		data cloudinit.Raw
	}{{"Disk", 64 << 10, userData}, {"Seed", 512 << 10, big}} {
		t.Run(tc.name, func(t *testing.T) {
			fill(t, d, filler, tc.free)
			_, err := p.CreateInstance(t.Context(), "pod", "sandbox-1", tc.data, spec("sandbox-1"))
			wantError(t, err, provider.ErrCapacity, libvirtd.Pool, "pool-name")
			empty(t, d, filler)
			d.WantNothing(t)
		})
	}
	remove(t, p, create(t, p, "sandbox-1").ID)
}

// fill leaves so many bytes of the pool's file system.
func fill(t *testing.T, d *libvirtd.Daemon, filler string, free int64) {
	t.Helper()
	if err := os.WriteFile(filler, make([]byte, freeBytes(t, d.Path("pool"))-free), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Virsh(t, "pool-refresh", libvirtd.Pool)
}

func empty(t *testing.T, d *libvirtd.Daemon, filler string) {
	t.Helper()
	if err := os.RemoveAll(filler); err != nil {
		t.Error(err)
	}
	d.Virsh(t, "pool-refresh", libvirtd.Pool)
}

// wrongState is something that is not as the provider needs it.
var wrongStates = []struct {
	name        string
	break_, fix []string
	change      func(*Config)
	image       string
	class       error
	words       []string
}{
	{name: "VolumeMissing", change: func(c *Config) { c.Volume = "nosuch.qcow2" },
		class: provider.ErrNotFound, words: []string{"nosuch.qcow2", "vol-name", "LIBVIRT_VOL_NAME"}},
	{name: "PoolMissing", change: func(c *Config) { c.Pool = "nosuch" },
		class: provider.ErrNotFound, words: []string{"nosuch", "pool-name", "LIBVIRT_POOL"}},
	{name: "NetworkMissing", change: func(c *Config) { c.Network = "nosuch" },
		class: provider.ErrNotFound, words: []string{"nosuch", "network-name", "LIBVIRT_NET"}},
	{name: "FirmwareMissing", change: func(c *Config) { c.Firmware = "/nosuch.fd" },
		class: provider.ErrNotFound, words: []string{"/nosuch.fd", "-firmware", "LIBVIRT_EFI_FIRMWARE"}},
	{name: "KernelMissing", change: func(c *Config) { c.Kernel = "/nosuch/vmlinux" },
		class: provider.ErrNotFound, words: []string{"/nosuch/vmlinux", "-libvirt-kernel", "LIBVIRT_KERNEL"}},
	{name: "NetworkDown", break_: []string{"net-destroy", libvirtd.Network}, fix: []string{"net-start", libvirtd.Network},
		class: provider.ErrUnavailable, words: []string{libvirtd.Network, "network-name", "net-start"}},
	{name: "PoolInactive", break_: []string{"pool-destroy", libvirtd.Pool}, fix: []string{"pool-start", libvirtd.Pool},
		class: provider.ErrUnavailable, words: []string{libvirtd.Pool, "pool-name", "pool-start"}},
	{name: "ImageOfThePodMissing", image: "nosuch-image",
		class: provider.ErrNotFound, words: []string{"nosuch-image"}},
}

// TestWrongStates: one error that names the flag, nothing left, and the same
// provider works when it is mended.
func TestWrongStates(t *testing.T) {
	d := start(t, libvirtd.Options{})
	for _, tc := range wrongStates {
		t.Run(tc.name, func(t *testing.T) {
			change := tc.change
			if change == nil {
				change = func(*Config) {}
			}
			p := connect(t, testConfig(d, change))
			if tc.break_ != nil {
				d.Virsh(t, tc.break_...)
			}
			s := spec("sandbox-1")
			if s.Image = tc.image; s.Image == "" {
				wantError(t, p.ConfigVerifier(), tc.class, tc.words...)
			}
			_, err := p.CreateInstance(t.Context(), "pod", "sandbox-1", userData, s)
			wantError(t, err, tc.class, tc.words...)
			if tc.fix != nil {
				d.Virsh(t, tc.fix...)
				remove(t, p, create(t, p, "sandbox-1").ID)
			}
			d.WantNothing(t)
		})
	}
}

func TestDomainPausedByOthers(t *testing.T) {
	d := start(t, libvirtd.Options{})
	p := connect(t, testConfig(d))
	i := create(t, p, "sandbox-1")
	name := strings.TrimSpace(d.Virsh(t, "list", "--name"))
	d.Virsh(t, "suspend", name)
	got, err := p.GetInstance(t.Context(), i.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.State != provider.StateStopped {
		t.Errorf("a paused domain is %s, want stopped", got.State)
	}
	if again := create(t, p, "sandbox-1"); again.ID != i.ID {
		t.Errorf("one key, instances %s and %s", i.ID, again.ID)
	}
	if err := p.PowerOn(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	if got, err := p.GetInstance(t.Context(), i.ID); err != nil || got.State != provider.StateRunning {
		t.Errorf("after power on: %+v, %v", got, err)
	}
	d.Virsh(t, "suspend", name)
	remove(t, p, i.ID)
}

// TestDomainChangedByOthers: the instance's id still deletes all of it.
func TestDomainChangedByOthers(t *testing.T) {
	d := start(t, libvirtd.Options{})
	p := connect(t, testConfig(d))
	for _, tc := range []struct {
		name     string
		commands [][]string
	}{
		{"Destroyed", [][]string{{"destroy"}}},
		{"Undefined", [][]string{{"destroy"}, {"undefine", "--nvram"}}},
		{"UndefinedRunning", [][]string{{"undefine", "--nvram"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := create(t, p, "sandbox-1")
			name := strings.TrimSpace(d.Virsh(t, "list", "--name"))
			for _, c := range tc.commands {
				d.Virsh(t, append(c, name)...)
			}
			remove(t, p, i.ID)
			d.WantNothing(t)
		})
	}
}

func TestForeignDomainIsNotTouched(t *testing.T) {
	d := libvirtd.Start(t, libvirtd.Options{})
	p := connect(t, testConfig(d))
	const uuid = "5d5a4c2e-6a3a-4b4f-9f6e-0a1b2c3d4e5f"
	file := d.Dir + "/foreign.xml"
	xml := "<domain type='qemu'><name>foreign</name><uuid>" + uuid + "</uuid><memory unit='MiB'>64</memory><os><type arch='x86_64'>hvm</type></os></domain>"
	if err := os.WriteFile(file, []byte(xml), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Virsh(t, "define", file)
	if err := p.DeleteInstance(t.Context(), uuid); err == nil {
		t.Log("deleting a foreign domain's id answers no error")
	}
	if _, err := p.GetInstance(t.Context(), uuid); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("get of a foreign domain: %v, want not found", err)
	}
	if names := d.Virsh(t, "list", "--all", "--name"); !strings.Contains(names, "foreign") {
		t.Error("the foreign domain is gone")
	}
}

// TestCallerGivesUp at several instants: what was made is gone or can be had
// again by its key.
func TestCallerGivesUp(t *testing.T) {
	d := start(t, libvirtd.Options{})
	p := connect(t, testConfig(d))
	for round := range tier.Rounds(t, 3, 6) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(round*40+1)*time.Millisecond)
		i, err := tryCreate(ctx, p, "sandbox-1")
		cancel()
		if err != nil && !provider.Retryable(err) {
			t.Errorf("round %d: error %v, want one to try again", round, err)
		}
		if i == nil || i.ID == "" {
			i = create(t, p, "sandbox-1")
		}
		remove(t, p, i.ID)
		d.WantNothing(t)
	}
}
