// SPDX-License-Identifier: Apache-2.0

//go:build integration

package libvirt

import (
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/libvirtd"
)

// freeBytes is how much room a folder's file system has.
func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}

// worksBy creates and deletes an instance over the URI.
func worksBy(t *testing.T, d *libvirtd.Daemon, uri string) {
	t.Helper()
	p := connect(t, testConfig(d, func(c *Config) { c.URI = uri }))
	if err := p.ConfigVerifier(); err != nil {
		t.Error(err)
		return
	}
	remove(t, p, create(t, p, "sandbox-1").ID)
	d.WantNothing(t)
}

// refusedBy wants the same error from the look at the start and from a call.
func refusedBy(t *testing.T, d *libvirtd.Daemon, uri string, class error, words ...string) {
	t.Helper()
	p, err := New(testConfig(d, func(c *Config) { c.URI = uri }))
	if err != nil {
		wantError(t, err, class, words...)
		return
	}
	defer p.Teardown()
	wantError(t, p.ConfigVerifier(), class, words...)
	_, err = tryCreate(t.Context(), p, "sandbox-1")
	wantError(t, err, class, words...)
}

func TestSSH(t *testing.T) {
	d := start(t, libvirtd.Options{})
	s := d.StartSSH(t)
	uri := func(key, more string) string { return "qemu+ssh://root@" + s.Address + "/system?keyfile=" + key + more }
	t.Run("NoVerify", func(t *testing.T) { worksBy(t, d, uri(s.Key, "&no_verify=1")) })
	t.Run("KnownHost", func(t *testing.T) { worksBy(t, d, uri(s.Key, "&known_hosts="+s.KnownHosts)) })
	t.Run("Socket", func(t *testing.T) {
		worksBy(t, d, uri(s.Key, "&no_verify=1&socket="+url.QueryEscape(d.Socket)))
	})
	t.Run("WrongKey", func(t *testing.T) {
		refusedBy(t, d, uri(s.WrongKey, "&no_verify=1"), provider.ErrUnauthenticated, "LIBVIRT_SSH_KEY", "root")
	})
	t.Run("KeyMissing", func(t *testing.T) {
		refusedBy(t, d, uri("/nosuch/key", "&no_verify=1"), provider.ErrUnauthenticated, "/nosuch/key", "LIBVIRT_SSH_KEY")
	})
	t.Run("AnotherServer", func(t *testing.T) {
		refusedBy(t, d, uri(s.Key, "&known_hosts="+s.WrongHosts), provider.ErrUnauthenticated, "LIBVIRT_KNOWN_HOSTS")
	})
	t.Run("NoDaemonThere", func(t *testing.T) {
		refusedBy(t, d, uri(s.Key, "&no_verify=1&socket=/nosuch.sock"), provider.ErrUnavailable, "/nosuch.sock", "LIBVIRT_URI")
	})
	t.Run("NoServer", func(t *testing.T) {
		refusedBy(t, d, "qemu+ssh://root@"+closedPort(t)+"/system?no_verify=1&keyfile="+s.Key, provider.ErrUnavailable, "LIBVIRT_URI", "refused")
	})
}

func TestTLS(t *testing.T) {
	d := start(t, libvirtd.Options{TLS: true})
	uri := func(pki string) string { return "qemu+tls://" + d.TLS.Address + "/system?pkipath=" + pki }
	t.Run("Certificate", func(t *testing.T) { worksBy(t, d, uri(d.TLS.Client)) })
	t.Run("Stranger", func(t *testing.T) {
		refusedBy(t, d, uri(d.TLS.Stranger), provider.ErrUnauthenticated, "certificate")
	})
	t.Run("NoCertificate", func(t *testing.T) {
		refusedBy(t, d, uri("/nosuch/pki"), provider.ErrUnauthenticated, "/nosuch/pki", "LIBVIRT_PKI_DIR")
	})
	t.Run("NotTLS", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				c.Write([]byte("220 mail.example.org ESMTP\r\n"))
				c.Close()
			}
		}()
		refusedBy(t, d, "qemu+tls://"+l.Addr().String()+"/system?pkipath="+d.TLS.Client, provider.ErrUnavailable, "LIBVIRT_URI")
	})
}

func TestWrongURIs(t *testing.T) {
	d := start(t, libvirtd.Options{})
	for _, tc := range []struct {
		name, uri string
		class     error
		word      string
	}{
		{"NoSocket", "qemu+unix:///system?socket=/nosuch.sock", provider.ErrUnavailable, "/nosuch.sock"},
		{"NotASocket", "qemu+unix:///system?socket=/etc/passwd", provider.ErrUnavailable, "/etc/passwd"},
		{"NoURI", "localhost", provider.ErrInvalidArgument, "localhost"},
		{"Transport", "qemu+carrier-pigeon://host/system", provider.ErrInvalidArgument, "carrier-pigeon"},
		{"Driver", "xen:///system", provider.ErrInvalidArgument, "xen"},
		{"Parameter", "qemu:///system?sokcet=/x", provider.ErrInvalidArgument, "sokcet"},
		{"NoHost", "qemu+ssh:///system", provider.ErrInvalidArgument, "host"},
	} {
		t.Run(tc.name, func(t *testing.T) { refusedBy(t, d, tc.uri, tc.class, "LIBVIRT_URI", tc.word) })
	}
}

func TestNoPermissionOnTheSocket(t *testing.T) {
	d := start(t, libvirtd.Options{})
	out, err := other(d, asNobody, d.URI).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{provider.ErrPermissionDenied.Error(), d.Socket, "LIBVIRT_URI"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("a user without permission reads %q, which lacks %q", out, want)
		}
	}
}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
