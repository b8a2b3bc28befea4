// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// mutualTLS: server and client have certificates of one authority in Secrets;
// who has none is refused.
func mutualTLS(t *testing.T, s *suite) {
	ca := newAuthority(t)
	server := s.pod("server", "exec podtool serve :8080 /tls").
		container(`{readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 30}, volumeMounts: [{name: tls, mountPath: /tls}]}`).
		with(`volumes: [{name: tls, secret: {secretName: mtls-server}}]`)
	s.start(t, server, serviceOf("server", 443), secret("mtls-server", ca.issue(t, "server")))
	stranger := newAuthority(t).issue(t, "stranger")
	stranger["ca.crt"] = ca.pem
	client := s.pod("client-of-server", "until podtool get https://server/ /tls; do sleep 0.2; done; podtool get https://server/ /stranger || echo refused").
		container(`volumeMounts: [{name: tls, mountPath: /tls}, {name: stranger, mountPath: /stranger}]`).
		with(`volumes: [{name: tls, secret: {secretName: mtls-client}}, {name: stranger, secret: {secretName: mtls-stranger}}]`)
	log := s.play(t, client, secret("mtls-client", ca.issue(t, "client")), secret("mtls-stranger", stranger))
	want(t, "answer", log, "hello from server")
	want(t, "answer to a stranger", log, "refused")
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := certificate("authority", 1)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{template, key, encode("CERTIFICATE", der)}
}

func certificate(name string, serial int64, usages ...x509.ExtKeyUsage) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: usages,
	}
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// issue returns what a Secret with a certificate holds. By default it is for servers and clients.
func (a *authority) issue(t *testing.T, name string, usages ...x509.ExtKeyUsage) map[string]string {
	t.Helper()
	if usages == nil {
		usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, certificate(name, time.Now().UnixNano(), usages...), a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"ca.crt": a.pem, "tls.crt": encode("CERTIFICATE", der), "tls.key": encode("PRIVATE KEY", private)}
}
