// SPDX-License-Identifier: Apache-2.0

//go:build integration

package volumes

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/outrigger/outrigger/providers/qemu"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

// TestVolumeSchedulesOnQEMU is TestSchedulesOfVolumes with the provider qemu: nodes and pods are VMs that run, and give up
// a disk themselves. VMs of pods are killed, too. OUTRIGGER_SEED runs one again.
func TestVolumeSchedulesOnQEMU(t *testing.T) {
	testns.RequireRoot(t)
	dir := os.Getenv("OUTRIGGER_PODVM_DIR")
	if dir == "" {
		t.Skip("no pod VM image; run: make podvm && OUTRIGGER_PODVM_DIR=$PWD/bin/podvm")
	}
	cfg := qemu.DefaultConfig()
	cfg.Kernel, cfg.Initrd, cfg.Accel, cfg.Memory = filepath.Join(dir, "vmlinux"), filepath.Join(dir, "initrd.cpio"), qemu.AccelTCG, 256
	cfg.TemplateDir = cmp.Or(os.Getenv("QEMU_TEMPLATE_DIR"), t.TempDir())
	if text := os.Getenv("OUTRIGGER_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("OUTRIGGER_SEED=%q: %v", text, err)
		}
		onQEMU(t, cfg, seed)
		return
	}
	ran, killed := 0, 0
	// A schedule may have no pod in a VM, but not twenty in a row.
	for n, rounds := 0, tier.Rounds(t, 2, 500); n < rounds || ran == 0 && n < 20; n++ {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			s := onQEMU(t, cfg, seed)
			ran, killed = ran+s.died["never: vm ran"], killed+s.died["never: vm killed"]
		})
	}
	t.Logf("%d pods ran in VMs, %d of which were killed", ran, killed)
	if ran == 0 {
		t.Error("no pod ran in a VM")
	}
}

func onQEMU(t *testing.T, cfg qemu.Config, seed uint64) *schedule {
	cfg.StateDir = filepath.Join(stand.Dir(t), "qemu")
	var open []*qemu.Provider
	s := newSchedule(t, seed, false, func() disks {
		p, err := qemu.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, p)
		return p
	})
	s.kill = func(vm string) {
		for _, pid := range stand.QEMUs(cfg.StateDir) {
			if dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); filepath.Base(dir) != vm {
				continue
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			s.died["never: vm killed"]++
		}
	}
	s.run()
	for _, n := range s.nodes {
		if err := open[0].DeleteInstance(t.Context(), n.id); err != nil {
			t.Error(err)
		}
	}
	for _, p := range open {
		if err := p.Teardown(); err != nil {
			t.Error(err)
		}
	}
	if left := stand.QEMUs(cfg.StateDir); len(left) > 0 {
		t.Errorf("QEMU runs on: %v", left)
	}
	return s
}
