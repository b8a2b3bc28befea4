// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

func flags(t *testing.T, env map[string]string, args ...string) Config {
	t.Helper()
	var c Config
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	settings := config.Bind(&c)
	settings.LoadEnv(func(name string) string { return env[name] })
	settings.AddFlags(fs)
	if err := errors.Join(fs.Parse(args), settings.Err()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfig(t *testing.T) {
	if err := flags(t, nil).validate(); err != nil {
		t.Error(err)
	}
	c := flags(t, map[string]string{"DOCKER_HOST": "tcp://h:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/c"})
	if err := c.validate(); err != nil || c.Host != "tcp://h:2376" || !c.TLSVerify || c.advertised() != "h" {
		t.Errorf("%+v, %v", c, err)
	}
	for args, want := range map[string]string{
		"--docker-host=nowhere":                     "--docker-host (DOCKER_HOST)",
		"--docker-host=ssh://laptop":                "--docker-host (DOCKER_HOST)",
		"--docker-api-version=new":                  "--docker-api-version",
		"--docker-tls-verify":                       "--docker-cert-path",
		"--docker-node-image=":                      "--docker-node-image",
		"--docker-loadbalancer-image=a b":           "--docker-loadbalancer-image",
		"--docker-advertise-host=http://a":          "--docker-advertise-host",
		"--docker-tls-verify --docker-cert-path=/c": "--docker-tls-verify",
	} {
		var list []string
		for _, arg := range strings.Split(args, " --") {
			list = append(list, "--"+strings.TrimPrefix(arg, "--"))
		}
		_, err := New(flags(t, nil, list...), slog.Default())
		if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// TestWarnings are in the log when the program starts, and nothing else is.
func TestWarnings(t *testing.T) {
	folder := t.TempDir()
	file, socket := filepath.Join(folder, "file"), filepath.Join(folder, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tls := filepath.Join(folder, "tls")
	writeCertificates(t, tls)
	for args, want := range map[string]string{
		"--docker-host=tcp://h:2375":                                               "DOCKER_TLS_VERIFY",
		"--docker-host=tcp://[::1]:2375":                                           "DOCKER_CERT_PATH",
		"--docker-host=unix:///dev/null":                                           "OUTRIGGER_DOCKER_SOCKET",
		"--docker-host=unix://" + file:                                             "is not a socket",
		"--docker-host=unix://" + socket:                                           "",
		"--docker-host=unix:///not/there":                                          "", // an engine that is unreachable must not keep the manager from starting
		"--docker-host=tcp://h:2376 --docker-tls-verify --docker-cert-path=" + tls: "",
	} {
		var log bytes.Buffer
		b, err := New(flags(t, nil, strings.Fields(args)...), slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		b.Close()
		if !strings.Contains(log.String(), want) || (want == "") != (log.Len() == 0) {
			t.Errorf("%s: %q, want %q", args, log.String(), want)
		}
	}
}

// writeCertificates writes those that a client has.
func writeCertificates(t *testing.T, folder string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"ca.pem": {Type: "CERTIFICATE", Bytes: cert}, "cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
