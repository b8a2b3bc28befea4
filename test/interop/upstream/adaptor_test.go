// SPDX-License-Identifier: Apache-2.0

//go:build integration

package upstream

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/localnet"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/providers/qemu"
	sim "github.com/outrigger/outrigger/test/cloudsim/byom"
	"github.com/outrigger/outrigger/test/stand"
)

// TestAdaptor has their adaptor, with their provider byom, drive our VM. Their machine
// is an SFTP server of the test, which boots a VM when the user-data comes and ends
// it when it is told to reboot.
func TestAdaptor(t *testing.T) {
	theirs := program(t, "OUTRIGGER_TEST_UPSTREAM_ADAPTOR", "cloud-api-adaptor (with the build tag byom)")
	dir := stand.Dir(t)
	registry := stand.StartRegistry(t)
	m := newMachine(t, dir, registry.WithNettool)
	stand.Start(t, stand.Daemon{
		Path: theirs,
		// Flags, since older ones know few variables.
		Args: []string{"byom", "-socket", dir + "/hypervisor.sock", "-pods-dir", dir + "/pods", "-peerpods-limit-per-node", "-1", "-proxy-timeout", "3m",
			"-vm-pool-ips", m.address.String(), "-pool-namespace", "pods", "-ssh-priv-key", m.keys.File("id"),
			"-ssh-pub-key", m.keys.File("id.pub"), "-ssh-host-key-allowlist-dir", m.keys.File("allowed")},
		Env: append(m.pool.InCluster(t), "CLOUD_PROVIDER=byom"),
		Log: dir + "/adaptor.log", Socket: dir + "/hypervisor.sock",
	})
	lifeOfAPod(t, dir, registry.WithNettool)
	noQEMU(t, dir)
}

// machine is the one of the pool.
type machine struct {
	pool               *sim.Pool
	keys               *sim.Keys
	provider           *qemu.Provider
	registry           string
	address            netip.Addr
	instances, console string // the VMs' folder, and where their consoles are kept
}

func newMachine(t *testing.T, dir, image string) *machine {
	t.Helper()
	registry, _, _ := strings.Cut(image, "/")
	keys := sim.NewKeys(t)
	m := &machine{pool: sim.Listen(t, 1, keys), keys: keys, registry: registry}
	cfg := qemu.DefaultConfig()
	cfg.StateDir, cfg.Accel, cfg.Subnet6, cfg.MTU = dir+"/qemu", qemu.AccelTCG, qemu.Prefix{}, 1500
	podvm := os.Getenv("OUTRIGGER_PODVM_DIR")
	if podvm == "" {
		podvm = filepath.Join(stand.Root(), "bin/podvm")
	}
	m.instances, m.console = cfg.StateDir+"/instances", dir+"/console.log"
	stand.ShowOnFailure(t, m.console)
	cfg.Kernel, cfg.Initrd = podvm+"/vmlinux", podvm+"/initrd.cpio"
	m.holdBridge(t, cfg)
	var err error
	if m.provider, err = qemu.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.provider.Teardown() })
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.live(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { end(); <-done })
	return m
}

// holdBridge has the VMs' network there before the VM, since theirs looks for its own
// address at once: that of the interface with the default route. The VM gets the second
// address, and whoever connects to its port 22 the machine's SFTP server.
func (m *machine) holdBridge(t *testing.T, cfg qemu.Config) {
	t.Helper()
	network, err := localnet.Open(localnet.Config{
		Bridge: cfg.Bridge, Subnets: []netip.Prefix{cfg.Subnet.Prefix}, MTU: cfg.MTU, StateDir: filepath.Join(cfg.StateDir, "net"),
	})
	if err != nil {
		t.Fatal(err)
	}
	first, err := network.AttachTap("first")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { network.Detach("first") })
	m.address = first.Addrs[0].Addr().Next()
	stand.Run(t, "ip", "route", "add", "default", "via", first.Addrs[0].Addr().String(), "dev", cfg.Bridge)
	stand.Run(t, "nft", fmt.Sprintf("add table ip machine; add chain ip machine output { type nat hook output priority -100; }; "+
		"add rule ip machine output ip daddr %s tcp dport 22 dnat to %s", m.address, m.pool.Listens(1)))
}

// live boots a VM for each user-data until ctx ends.
func (m *machine) live(ctx context.Context) error {
	for {
		data, ok := m.await(ctx, sim.UserDataFile)
		if !ok {
			return nil
		}
		instance, err := m.boot(ctx, data)
		if err != nil {
			return fmt.Errorf("boot a VM with the user-data that came: %w", err)
		}
		_, ok = m.await(ctx, sim.RebootFile)
		m.pool.Machine(1).Clear()
		text, err := os.ReadFile(filepath.Join(m.instances, instance.ID, "console.log"))
		if err == nil {
			err = os.WriteFile(m.console, text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("keep the VM's console: %w", err)
		}
		if err := m.provider.DeleteInstance(context.Background(), instance.ID); err != nil || !ok {
			return err
		}
	}
}

// await polls for a file that has something in it.
func (m *machine) await(ctx context.Context, name string) (string, bool) {
	for {
		if text := m.pool.Machine(1).File(name); text != "" {
			return text, true
		}
		select {
		case <-ctx.Done():
			return "", false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// boot adds to the user-data what an operator would have in the machine's image: that
// the registry of the test speaks plain HTTP.
func (m *machine) boot(ctx context.Context, data string) (*provider.Instance, error) {
	config, err := cloudinit.Parse([]byte(data))
	if err != nil {
		return nil, err
	}
	config.WriteFiles = append(config.WriteFiles, cloudinit.WriteFile{Path: "/run/peerpod/insecure-registries", Content: m.registry + "\n"})
	instance, err := m.provider.CreateInstance(ctx, "machine", fmt.Sprintf("machine-%d", time.Now().UnixNano()), config, provider.InstanceTypeSpec{})
	if err == nil && instance.IPs[0] != m.address {
		err = fmt.Errorf("the VM has the address %v, and the pool %v", instance.IPs[0], m.address)
	}
	return instance, err
}
