// SPDX-License-Identifier: Apache-2.0

package podtls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func newBundle(t *testing.T, name string, now time.Time) *Bundle {
	t.Helper()
	b, err := NewBundle(name, now)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func clientOptions(b *Bundle, name string) ClientOptions {
	return ClientOptions{ServerName: name, CAPEM: b.CAPEM, CertPEM: b.ClientCertPEM, KeyPEM: b.ClientKeyPEM}
}

func serverOptions(b *Bundle) ServerOptions {
	return ServerOptions{CertPEM: b.ServerCertPEM, KeyPEM: b.ServerKeyPEM, ClientCAPEM: b.CAPEM}
}

// shake joins both ends, lets each send the other a byte, and returns what
// each end made of it.
func shake(t *testing.T, co ClientOptions, so ServerOptions) (client, server error) {
	t.Helper()
	cc, err := ClientConfig(co)
	if err != nil {
		t.Fatal(err)
	}
	sc, err := ServerConfig(so)
	if err != nil {
		t.Fatal(err)
	}
	return join(t, cc, sc)
}

func join(t *testing.T, cc, sc *tls.Config) (client, server error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		defer b.Close()
		done <- echo(tls.Server(b, sc))
	}()
	client = exchange(tls.Client(a, cc))
	a.Close()
	return client, <-done
}

func echo(conn *tls.Conn) error {
	buf := make([]byte, 1)
	if _, err := conn.Read(buf); err != nil {
		return err
	}
	_, err := conn.Write(buf)
	return err
}

func exchange(conn *tls.Conn) error {
	if _, err := conn.Write([]byte("x")); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}

func TestHandshake(t *testing.T) {
	now := time.Now()
	ours, other := newBundle(t, "podvm-a", now), newBundle(t, "podvm-a", now)
	tampered := *ours
	tampered.ServerCertPEM = flipLastByte(t, ours.ServerCertPEM)

	tests := []struct {
		name               string
		client             ClientOptions
		server             ServerOptions
		clientOK           bool
		serverOK           bool
		inClient, inServer string
	}{
		{name: "the pod's own", client: clientOptions(ours, "podvm-a"), server: serverOptions(ours), clientOK: true, serverOK: true},
		{name: "another pod's VM", client: clientOptions(ours, "podvm-a"), server: serverOptions(other), inClient: "unknown authority"},
		{name: "wrong name", client: clientOptions(ours, "podvm-b"), server: serverOptions(ours), inClient: "podvm-b"},
		{name: "tampered certificate", client: clientOptions(ours, "podvm-a"), server: serverOptions(&tampered), inClient: "x509"},
		{name: "client without certificate", client: ClientOptions{ServerName: "podvm-a", CAPEM: ours.CAPEM}, server: serverOptions(ours), inServer: "certificate"},
		{name: "another pod's client", client: ClientOptions{ServerName: "podvm-a", CAPEM: ours.CAPEM, CertPEM: other.ClientCertPEM, KeyPEM: other.ClientKeyPEM}, server: serverOptions(ours), inServer: "x509"},
		{name: "server certificate as client", client: ClientOptions{ServerName: "podvm-a", CAPEM: ours.CAPEM, CertPEM: ours.ServerCertPEM, KeyPEM: ours.ServerKeyPEM}, server: serverOptions(ours), inServer: "x509"},
		{name: "client's own certificate as root", client: clientOptions(ours, "podvm-a"), server: ServerOptions{CertPEM: ours.ServerCertPEM, KeyPEM: ours.ServerKeyPEM, ClientCAPEM: ours.ClientCertPEM}, clientOK: true, serverOK: true},
		{name: "nobody verifies", client: ClientOptions{SkipVerify: true}, server: ServerOptions{CertPEM: other.ServerCertPEM, KeyPEM: other.ServerKeyPEM, SkipVerify: true}, clientOK: true, serverOK: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, server := shake(t, tt.client, tt.server)
			check(t, "client", client, tt.clientOK, tt.inClient)
			check(t, "server", server, tt.serverOK, tt.inServer)
		})
	}
}

func check(t *testing.T, end string, err error, ok bool, text string) {
	t.Helper()
	if (err == nil) != ok {
		t.Errorf("%s: error %v, want success %v", end, err, ok)
	}
	if err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("%s: error %q does not tell %q", end, err, text)
	}
}

// TestGuestClock boots VMs whose clock is wrong: the bubble's clock stands at
// the beginning of the year 2000.
func TestGuestClock(t *testing.T) {
	ahead := 30 * 365 * 24 * time.Hour
	for name, skew := range map[string]time.Duration{"right": 0, "decades behind": ahead} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBundle(t, "podvm-a", time.Now().Add(skew))
				cc, err := ClientConfig(clientOptions(b, "podvm-a"))
				if err != nil {
					t.Fatal(err)
				}
				cc.Time = func() time.Time { return time.Now().Add(skew) }
				sc, err := ServerConfig(serverOptions(b))
				if err != nil {
					t.Fatal(err)
				}
				client, server := join(t, cc, sc)
				check(t, "client", client, true, "")
				check(t, "server", server, true, "")
			})
		})
	}
}

func TestExpiredClient(t *testing.T) {
	b := newBundle(t, "podvm-a", time.Now().Add(-3*365*24*time.Hour))
	_, err := shake(t, ClientOptions{SkipVerify: true, CertPEM: b.ClientCertPEM, KeyPEM: b.ClientKeyPEM}, serverOptions(b))
	if err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("server took an expired client certificate: %v", err)
	}
}

func TestBundleContents(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	b := newBundle(t, "podvm-a", now)
	_, certs, err := pool(b.ServerCertPEM)
	if err != nil {
		t.Fatal(err)
	}
	cert := certs[0]
	if cert.Subject.CommonName != "podvm-a" || len(cert.DNSNames) != 1 || cert.DNSNames[0] != "podvm-a" {
		t.Errorf("names %q, %q", cert.Subject.CommonName, cert.DNSNames)
	}
	if got := now.Sub(cert.NotBefore); got != time.Hour {
		t.Errorf("backdated by %v", got)
	}
	if got := cert.NotAfter.Sub(cert.NotBefore); got != validity {
		t.Errorf("valid for %v", got)
	}
	for _, key := range [][]byte{b.ServerKeyPEM, b.ClientKeyPEM} {
		block, _ := pem.Decode(key)
		if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
			t.Errorf("key is not PKCS#8: %v", err)
		}
	}
	if _, err := NewBundle("", now); err == nil {
		t.Error("a bundle without server name")
	}
}

func TestOptionErrors(t *testing.T) {
	b := newBundle(t, "podvm-a", time.Now())
	good := clientOptions(b, "podvm-a")
	tests := map[string]struct {
		change func(*ClientOptions)
		want   string
	}{
		"no name":     {func(o *ClientOptions) { o.ServerName = "" }, "server name"},
		"no PEM":      {func(o *ClientOptions) { o.CAPEM = []byte("garbage") }, "no PEM certificate"},
		"cut PEM":     {func(o *ClientOptions) { o.CAPEM = flipDERLength(t, b.CAPEM) }, "certificate 1"},
		"key missing": {func(o *ClientOptions) { o.KeyPEM = nil }, "client certificate and key"},
		"foreign key": {func(o *ClientOptions) { o.KeyPEM = b.ServerKeyPEM }, "does not match"},
		"1.3 with suites": {func(o *ClientOptions) {
			o.MinVersion, o.CipherSuites = tls.VersionTLS13, []uint16{tls.TLS_AES_128_GCM_SHA256}
		}, "VersionTLS13"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := good
			tt.change(&o)
			if _, err := ClientConfig(o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	if _, err := ServerConfig(ServerOptions{CertPEM: b.ServerCertPEM, KeyPEM: b.ServerKeyPEM}); err == nil {
		t.Error("a server that verifies against nothing")
	}
}

func TestParseNames(t *testing.T) {
	for name, want := range map[string]uint16{"": tls.VersionTLS12, "VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13} {
		if got, err := ParseVersion(name); err != nil || got != want {
			t.Errorf("ParseVersion(%q) = %x, %v", name, got, err)
		}
	}
	if _, err := ParseVersion("1.2"); err == nil {
		t.Error("ParseVersion took 1.2")
	}
	ids, err := ParseCipherSuites([]string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", " TLS_AES_128_GCM_SHA256"})
	if err != nil || len(ids) != 2 || ids[0] != tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 {
		t.Errorf("suites %x, %v", ids, err)
	}
	for name, want := range map[string]string{"TLS_RSA_WITH_RC4_128_SHA": "insecure", "nonsense": "known are"} {
		if _, err := ParseCipherSuites([]string{name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseCipherSuites(%q): %v", name, err)
		}
	}
}

func flipLastByte(t *testing.T, text []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(text)
	der := bytes.Clone(block.Bytes)
	der[len(der)-1] ^= 1
	return pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: der})
}

func flipDERLength(t *testing.T, text []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(text)
	return pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes[:len(block.Bytes)-3]})
}
