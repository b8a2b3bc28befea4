// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/internal/dockerengine"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/test/dockerd"
)

// TestBootstrap of machines in the ways that there are.
func TestBootstrap(t *testing.T) {
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	b := open(t, testConfig(d.Engine))
	w := newWorld("default", "boot")
	w.ensureCluster(t, b)
	file := func(t *testing.T, state reconciler.MachineState, name, want string) {
		t.Helper()
		if got, err := d.ReadFile(state.ProviderID[len(providerPrefix):], name); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}

	t.Run("ignition", func(t *testing.T) {
		s := w.add("ignition", false)
		s.Format, s.Bootstrap = reconciler.FormatIgnition, []byte(`{"ignition": {"version": "2.3.0"},
			"storage": {"files": [{"filesystem": "root", "path": "/etc/hello", "mode": 384, "contents": {"source": "data:,hello%20there"}}]},
			"systemd": {"units": [{"name": "kubeadm.service", "enabled": true, "contents": "[Service]\nType=oneshot\nExecStart=/bin/busybox cp /etc/hello /var/lib/unit\n"}]}}`)
		state := w.ensure(t, b, s)
		file(t, state, "/etc/hello", "hello there")
		file(t, state, "/var/lib/unit", "hello there")
	})

	t.Run("interrupted", func(t *testing.T) {
		s := w.add("interrupted", false)
		s.Bootstrap = []byte("#cloud-config\nruncmd:\n- echo once >> /var/lib/log\n- echo again >> /var/lib/log; until [ -e /var/lib/go ]; do /bin/busybox sleep 0.1; done\n")
		step := func(want string) {
			t.Helper()
			eventually(t, "step "+want, func(ctx context.Context) (bool, string) {
				state, err := b.EnsureMachine(ctx, s)
				return strings.Contains(state.Message, want), fmt.Sprintf("%+v, %v", state, err)
			})
		}
		step("runcmd/1")
		c, err := b.containerWith(t.Context(), labelKey, s.Key)
		if err != nil || c == nil {
			t.Fatal(err)
		}
		log := func(want string) {
			t.Helper()
			eventually(t, "a log", func(context.Context) (bool, string) {
				got, err := d.ReadFile(c.ID, "/var/lib/log")
				return got == want, fmt.Sprintf("%q, %v", got, err)
			})
		}
		log("once\nagain\n")
		if _, err := d.Client.ContainerRestart(t.Context(), c.ID, client.ContainerRestartOptions{}); err != nil {
			t.Fatal(err)
		}
		log("once\nagain\nagain\n") // of two attempts
		if err := b.copyIn(t.Context(), c.ID, dockerengine.File{Name: "/var/lib/go", Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		file(t, w.ensure(t, b, s), "/var/lib/log", "once\nagain\nagain\n")
	})

	t.Run("failed", func(t *testing.T) {
		s := w.add("failed", false)
		s.Bootstrap = []byte("#cloud-config\nruncmd:\n- exit 3\n")
		eventually(t, "a failure", func(ctx context.Context) (bool, string) {
			state, err := b.EnsureMachine(ctx, s)
			return state.Reason == ReasonBootstrapFailed && !state.Provisioned && strings.Contains(state.Message, "exit status 3"), fmt.Sprintf("%+v, %v", state, err)
		})
	})

	t.Run("images", func(t *testing.T) {
		s := w.add("images", false)
		specOf(s).PreLoadImages = []string{balancerImage, nodeImage}
		s.Bootstrap = []byte("#cloud-config\nwrite_files:\n" +
			`- {path: /etc/node-agent/settings.json, content: '{"importImage": ["/bin/sh", "-c", "/bin/busybox tar -xOf $0 manifest.json >> /var/lib/imported"]}'}` + "\n")
		state := w.ensure(t, b, s)
		got, err := d.ReadFile(state.ProviderID[len(providerPrefix):], "/var/lib/imported")
		if err != nil || strings.Count(got, "RepoTags") != 2 || !strings.Contains(got, balancerImage) || !strings.Contains(got, nodeImage) {
			t.Errorf("%q, %v", got, err)
		}
	})

	t.Run("secrets", func(t *testing.T) {
		s := w.add("secrets", false)
		s.Bootstrap = []byte("#cloud-config\nruncmd:\n- test -e /var/lib/node-agent/user-data\n- echo kubeadm join --token abcdef.0123456789abcdef\n")
		state := w.ensure(t, b, s)
		if logs := logsOf(t, d.Engine, state.ProviderID[len(providerPrefix):]); !strings.Contains(logs, "--token [hidden]") || strings.Contains(logs, "abcdef.0123456789abcdef") {
			t.Errorf("docker logs: %q", logs)
		}
		// What was used is not kept.
		eventually(t, "an end of the bootstrap data", func(ctx context.Context) (bool, string) {
			text, err := b.read(ctx, state.ProviderID[len(providerPrefix):], "/var/lib/node-agent/user-data")
			return text == nil && err == nil, fmt.Sprintf("%d bytes, %v", len(text), err)
		})
	})
	w.deleteCluster(t, b)
}

// TestRemoteEngine is one that is reached over the network, with certificates.
func TestRemoteEngine(t *testing.T) {
	certificates := t.TempDir()
	makeCertificates(t, certificates)
	d := dockerd.StartDaemon(t, dockerd.Options{TCP: "127.0.0.1:2376", Certificates: certificates})
	importImages(t, d.Engine)
	c := testConfig(d.Engine)
	c.Host, c.TLSVerify, c.CertPath = "tcp://127.0.0.1:2376", true, certificates
	b := open(t, c)
	w := newWorld("default", "remote")
	if state := w.ensureCluster(t, b); state.Endpoint.Host != "127.0.0.1" || state.Endpoint.Port == defaultPort {
		t.Errorf("endpoint %v, want a port of the engine's host", state.Endpoint)
	}
	w.ensure(t, b, w.add("cp", true))
	answers(t, endpointOf(w), "cp")
	w.deleteCluster(t, b)

	c.CertPath = t.TempDir()
	makeCertificates(t, c.CertPath) // of another authority
	if _, err := open(t, c).EnsureCluster(t.Context(), w.clusterScope()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with certificates of somebody else: %v", err)
	}
}

// makeCertificates writes ca.pem, cert.pem, key.pem, server.pem, server-key.pem.
func makeCertificates(t *testing.T, dir string) {
	t.Helper()
	write := func(name, kind string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var ca *x509.Certificate
	var caKey *ecdsa.PrivateKey
	for i, names := range [][2]string{{"ca.pem", ""}, {"server.pem", "server-key.pem"}, {"cert.pem", "key.pem"}} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: names[0]}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: i == 0, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
		if i == 0 {
			ca, caKey = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
		if err != nil {
			t.Fatal(err)
		}
		write(names[0], "CERTIFICATE", der)
		if names[1] != "" {
			text, err := x509.MarshalECPrivateKey(key)
			if err != nil {
				t.Fatal(err)
			}
			write(names[1], "EC PRIVATE KEY", text)
		}
	}
}
