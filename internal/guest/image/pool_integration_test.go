// SPDX-License-Identifier: Apache-2.0

//go:build integration

package image

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/nocloud"
	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/handover"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// identity returns user-data with a new identity and more files, and the settings of its node.
func identity(t *testing.T, name string, await bool, files ...cloudinit.WriteFile) (userData string, node *tls.Config) {
	t.Helper()
	b, err := podtls.NewBundle(name, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text, err := (&apf.Config{TLSServerKey: string(b.ServerKeyPEM), TLSServerCert: string(b.ServerCertPEM), TLSClientCA: string(b.CAPEM), AwaitPod: await}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if userData, err = (cloudinit.CloudConfig{WriteFiles: append(files, cloudinit.WriteFile{Path: apf.DefaultPath, Content: string(text)})}).Generate(); err != nil {
		t.Fatal(err)
	}
	node, err = podtls.ClientConfig(podtls.ClientOptions{ServerName: name, CAPEM: b.CAPEM, CertPEM: b.ClientCertPEM, KeyPEM: b.ClientKeyPEM})
	if err != nil {
		t.Fatal(err)
	}
	return userData, node
}

// freePort returns one for QEMU, which takes no listener.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// TestVMOfAPool boots the image that ships as a VM of a pool, hands it over to a pod and
// sees that the forwarder then has the pod's identity, and that no other was seen.
func TestVMOfAPool(t *testing.T) {
	t.Parallel()
	needTools(t, "apt-get", "apt", "dpkg-deb", "dpkg", "depmod", "kmod", "qemu-system-x86_64", "qemu-system-x86")
	pool, poolNode := identity(t, "pool-vm", true)
	pod, podNode := identity(t, "pod-vm", false)
	v, address := startPodVM(t, buildOwnImage(t, Options{}), pool)
	v.await(t, "waiting for a pod")
	ctx, cancel := context.WithTimeout(t.Context(), bootDeadline)
	defer cancel()
	if err := handover.Send(ctx, address, poolNode, nil); err != nil {
		t.Fatalf("a probe: %v", err)
	}
	began := time.Now()
	if err := handover.Send(ctx, address, poolNode, []byte(pod)); err != nil {
		t.Fatal(err)
	}
	answered := time.Since(began)
	if err := awaitIdentity(ctx, address, podNode); err != nil {
		t.Fatal(err)
	}
	t.Logf("HANDOVER answered after %v, forwarder with the pod's identity after %v", answered, time.Since(began))
	if err := handover.Send(ctx, address, poolNode, nil); !errors.Is(err, handover.ErrIdentity) {
		t.Errorf("with the pool's identity: error %v, want ErrIdentity", err)
	}
	v.await(t, "agent is ready")
}

// startPodVM boots an image with user-data. The forwarder's port is at address once it is open.
func startPodVM(t *testing.T, image, userData string) (v *vm, address string) {
	t.Helper()
	const mac = "52:54:00:00:00:60"
	seed, err := nocloud.Seed{Hostname: "podvm", UserData: userData, Network: nocloud.Network{Version: 2, Ethernets: map[string]nocloud.Ethernet{
		"id0": {Match: nocloud.Match{MACAddress: mac}, SetName: "eth0", Addresses: []string{"10.0.2.15/24"}, Gateway4: "10.0.2.2"},
	}}}.Image()
	if err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(t.TempDir(), "seed.iso")
	address = freePort(t)
	if err := os.WriteFile(disk, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	v = startVM(t, append(directBoot(image, ""),
		"-netdev", "user,id=n0,restrict=on,ipv6=off,hostfwd=tcp:"+address+"-:15150", "-device", "virtio-net-pci,netdev=n0,romfile=,mac="+mac,
		"-drive", "if=none,id=cd,format=raw,readonly=on,file="+disk, "-device", "virtio-blk-pci,drive=cd,serial=cidata")...)
	return v, address
}

// awaitIdentity returns when the VM has the identity that node expects. Until then
// nobody may serve: another identity is an error.
func awaitIdentity(ctx context.Context, address string, node *tls.Config) error {
	dialer := tls.Dialer{Config: node}
	return poll.Pace{First: 5 * time.Millisecond, Max: 5 * time.Millisecond}.Until(ctx, func() (bool, error) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			return true, conn.Close()
		}
		if errors.As(err, new(*tls.CertificateVerificationError)) {
			return false, fmt.Errorf("between the answer and the pod's forwarder: %w", err)
		}
		return false, nil
	})
}
