// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// CA is the certificate, in PEM, of who signs all certificates of the cluster.
func (c *ControlPlane) CA() []byte { return c.ca.PEM }

// Serving writes tls.crt and tls.key of a server on the loopback address into
// dir, as those find them that serve webhooks.
func (c *ControlPlane) Serving(t testing.TB, dir string) {
	t.Helper()
	template := newTemplate(pkix.Name{CommonName: "localhost"})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	cert, key := c.ca.issue(t, template)
	must(t, os.MkdirAll(dir, 0o700), "make the folder of a server's certificate")
	must(t, os.WriteFile(filepath.Join(dir, "tls.crt"), cert, 0o600), "write a server's certificate")
	must(t, os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600), "write a server's key")
}

// HoldPort returns the number of a port of the loopback address that nobody
// else gets while the test runs, also while nothing listens on it.
func HoldPort(t testing.TB) string {
	t.Helper()
	return holdPort(t, "127.0.0.1").number
}
