// SPDX-License-Identifier: Apache-2.0

//go:build integration

package libvirt

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/libvirtd"
	"github.com/outrigger/outrigger/test/tier"
)

// bootWait is ten times what a guest takes to boot on an idle machine.
const bootWait = 2 * time.Minute

// forwarderPort is where the guest's forwarder listens when the VM is ready.
const forwarderPort = 15150

// guestConfig is user-data with which the forwarder starts, and the node's
// side of the channel.
func guestConfig(t *testing.T) (cloudinit.CloudConfigGenerator, *tls.Config) {
	t.Helper()
	const name = "podvm-test"
	bundle, err := podtls.NewBundle(name, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	file, err := (&apf.Config{
		PodName: "pod", PodNamespace: "test",
		TLSServerKey: string(bundle.ServerKeyPEM), TLSServerCert: string(bundle.ServerCertPEM), TLSClientCA: string(bundle.CAPEM),
	}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	client, err := podtls.ClientConfig(podtls.ClientOptions{
		ServerName: name, CAPEM: bundle.CAPEM, CertPEM: bundle.ClientCertPEM, KeyPEM: bundle.ClientKeyPEM,
	})
	if err != nil {
		t.Fatal(err)
	}
	return cloudinit.CloudConfig{WriteFiles: []cloudinit.WriteFile{{Path: apf.DefaultPath, Content: string(file)}}}, client
}

// awaitForwarder waits for the guest's forwarder, which has the certificate of
// its user-data.
func awaitForwarder(t *testing.T, p *Provider, i *provider.Instance, client *tls.Config) {
	t.Helper()
	deadline := time.Now().Add(bootWait)
	address := netip.AddrPortFrom(i.IPs[0], forwarderPort).String()
	var last error
	for time.Now().Before(deadline) {
		// An address that nobody has answers nothing for long.
		dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: 200 * time.Millisecond}, Config: client}
		conn, err := dialer.DialContext(t.Context(), "tcp", address)
		if err == nil {
			conn.Close()
			return
		}
		last = err
		select { // a refusal comes at once
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	console, err := p.Console(context.WithoutCancel(t.Context()), i.ID, 4096)
	t.Fatalf("no forwarder at %s: %v; console (%v):\n%s", address, last, err, console)
}

// directBoot hands kernel and initramfs to the guest.
func directBoot(t *testing.T, d *libvirtd.Daemon) func(*Config) {
	t.Helper()
	dir := libvirtd.ImageDir(t)
	return func(c *Config) {
		c.Kernel, c.Initrd = filepath.Join(dir, "vmlinux"), filepath.Join(dir, "initrd.cpio")
		c.Memory = 256
	}
}

// uefiBoot boots the base volume, as on a cloud.
func uefiBoot(c *Config) {
	c.Firmware, c.Memory, c.RootDisk = libvirtd.Firmware, 512, 1
}

func TestPodVMFromBirthToDeath(t *testing.T) {
	d := start(t, libvirtd.Options{NAT: true})
	for _, tc := range []struct {
		name string
		how  func(*Config)
	}{{"Kernel", directBoot(t, d)}, {"UEFI", uefiBoot}} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "Kernel" {
				tier.OnlyAll(t) // test/run has a pod in such a VM
			}
			birthToDeath(t, d, testConfig(d, tc.how))
		})
	}
}

func birthToDeath(t *testing.T, d *libvirtd.Daemon, cfg Config) {
	p := connect(t, cfg)
	if err := p.ConfigVerifier(); err != nil {
		t.Fatal(err)
	}
	data, client := guestConfig(t)
	begin := time.Now()
	i, err := p.CreateInstance(t.Context(), "pod", "sandbox-1", data, spec("sandbox-1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("created in %v, address %v", time.Since(begin), i.IPs)
	awaitForwarder(t, p, i, client)
	t.Logf("forwarder after %v", time.Since(begin))
	console, err := p.Console(t.Context(), i.ID, 8192)
	if err != nil || !strings.Contains(string(console), "podvm-init") {
		t.Errorf("console: %v\n%s", err, console)
	}

	other := connect(t, cfg) // as another process would
	got, err := other.GetInstance(t.Context(), i.ID)
	if err != nil || got.Key != "sandbox-1" || got.State != provider.StateRunning || len(got.IPs) == 0 || got.IPs[0] != i.IPs[0] {
		t.Errorf("get: %+v, %v", got, err)
	}
	begin = time.Now()
	remove(t, other, i.ID)
	remove(t, other, i.ID)
	t.Logf("deleted in %v", time.Since(begin))
	d.WantNothing(t)
}
