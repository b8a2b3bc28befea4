// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package carriers proves the local providers as other programs: as process
// plugins and as servers on a socket, with provider-check as a user runs it.
package carriers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/libvirtd"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

func TestMain(m *testing.M) { testns.Main(m) }

// fewChecks returns those of [tier.SomeChecks] that providers run whose instances are
// VMs: each boots.
func fewChecks() string {
	if tier.All() {
		return tier.Checks()
	}
	return "^(create|create-user-data-once|key-lost-reply|delete-repeated|list-owner|verify|teardown)$"
}

func TestQEMU(t *testing.T) {
	testns.RequireRoot(t)
	overCarriers(t, "qemu", fewChecks(), func(t *testing.T) []string {
		return []string{
			"QEMU_STATE_DIR=" + filepath.Join(stand.Dir(t), "qemu"), "QEMU_ACCEL=tcg", "QEMU_MEMORY=256",
			"QEMU_KERNEL=" + stand.Binary(t, "podvm/vmlinux"), "QEMU_INITRD=" + stand.Binary(t, "podvm/initrd.cpio"),
		}
	})
}

func TestLibvirt(t *testing.T) {
	testns.RequireRoot(t)
	d := libvirtd.Start(t, libvirtd.Options{})
	overCarriers(t, "libvirt", fewChecks(), func(t *testing.T) []string {
		t.Cleanup(func() { d.WantNothing(t) })
		return append(d.Env(), "LIBVIRT_MEMORY=96", "LIBVIRT_CPU=1", "LIBVIRT_EFI_FIRMWARE=bios", "LIBVIRT_ROOT_DISK_SIZE=0")
	})
}

// overCarriers runs the checks on the provider's program as process plugin and
// as server; settings are its variables. Whoever is over the socket does not see which
// provider it is, so that in `make test` one goes over it, the others over the process.
func overCarriers(t *testing.T, name, checks string, settings func(*testing.T) []string) {
	program := stand.BinaryAs(t, "provider-"+name, name)
	const overSocket = "libvirt"
	t.Run("process", func(t *testing.T) {
		if name == overSocket {
			tier.OnlyAll(t)
		}
		check(t, checks, settings(t), "--plugin", program)
	})
	t.Run("socket", func(t *testing.T) {
		if name != overSocket {
			tier.OnlyAll(t)
		}
		dir, env := stand.Dir(t), settings(t)
		socket := filepath.Join(dir, "p.sock")
		stand.Start(t, stand.Daemon{Path: program, Args: []string{"--listen", "unix://" + socket}, Env: env, Log: filepath.Join(dir, "log"), Socket: socket})
		check(t, checks, nil, "--endpoint", "unix://"+socket)
	})
}

func check(t *testing.T, checks string, env []string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), stand.Binary(t, "provider-check"), append(args, "--run", checks, "--parallel", "4")...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	t.Log(lines[len(lines)-1])
	if err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
}
