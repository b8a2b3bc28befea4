// SPDX-License-Identifier: Apache-2.0

//go:build integration

package upstream

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/outrigger/outrigger/internal/podvm"
	"github.com/outrigger/outrigger/test/stand"
)

// TestForwarder has our adaptor drive a VM whose agent-protocol-forwarder is theirs.
func TestForwarder(t *testing.T) {
	theirs := program(t, "OUTRIGGER_TEST_UPSTREAM_FORWARDER", "agent-protocol-forwarder")
	dir := stand.Dir(t)
	image := imageWith(t, theirs)
	registry := stand.StartRegistry(t)
	stand.StartAdaptor(t, dir, "-qemu-kernel", image+"/vmlinux", "-qemu-initrd", image+"/initrd.cpio", "-qemu-memory", "1024")
	lifeOfAPod(t, dir, registry.Ref)
	noQEMU(t, dir)
}

// imageWith builds the image of a VM with their forwarder among our programs.
func imageWith(t *testing.T, forwarder string) string {
	t.Helper()
	programs, out := t.TempDir(), t.TempDir()
	for name, path := range map[string]string{
		"podvm-init": stand.Binary(t, "podvm-init"), "podvm-agent": stand.Binary(t, "podvm-agent"),
		"process-user-data": stand.Binary(t, "process-user-data"), "agent-protocol-forwarder": forwarder,
	} {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(programs, name), data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cache := os.Getenv("OUTRIGGER_CACHE")
	if cache == "" {
		home, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(home, "outrigger")
	}
	_, err := podvm.Build(t.Context(), podvm.Options{
		Output: out, Cache: filepath.Join(cache, "podvm"), Binaries: programs, Formats: []string{podvm.FormatDirect}, Log: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
