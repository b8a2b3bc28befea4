// SPDX-License-Identifier: Apache-2.0

// Package swtpm starts software TPMs (swtpm of Debian) for tests, each in a folder of its own, with a certificate
// by an authority of its own.
package swtpm

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/outrigger/outrigger/test/stand"
)

// TPM is a TPM 2.0 that runs until the test ends.
type TPM struct {
	// Roots is the authority of its endorsement certificate.
	Roots *x509.CertPool

	program, folder string
	swtpm           *stand.Process
}

// Start starts a TPM as its maker delivers it, with an endorsement certificate.
func Start(t testing.TB) *TPM {
	t.Helper()
	s := newTPM(t)
	s.manufacture(t)
	s.start(t)
	return s
}

// StartBlank starts a TPM without keys and certificate, which takes a second less.
func StartBlank(t testing.TB) *TPM {
	t.Helper()
	s := newTPM(t)
	s.start(t)
	return s
}

func newTPM(t testing.TB) *TPM {
	t.Helper()
	program, err := exec.LookPath("swtpm")
	if err != nil {
		t.Fatalf("%v; install swtpm and swtpm-tools, as build/setup.sh test does", err)
	}
	s := &TPM{program: program, folder: stand.Dir(t)}
	if err := os.Mkdir(s.path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *TPM) start(t testing.TB) {
	t.Helper()
	s.swtpm = stand.Start(t, stand.Daemon{
		Path: s.program, Log: s.path("log"), Socket: s.path("socket"),
		Args: []string{"socket", "--tpm2", "--tpmstate", "dir=" + s.path("state"),
			"--server", "type=unixio,path=" + s.path("socket"), "--flags", "startup-clear,not-need-init"},
	})
}

// Open returns a connection to it, which the test closes at its end.
func (s *TPM) Open(t testing.TB) transport.TPMCloser {
	t.Helper()
	conn, err := net.Dial("unix", s.path("socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return transport.FromReadWriteCloser(conn)
}

// Reboot resets it, as power off and on does.
func (s *TPM) Reboot(t testing.TB) {
	t.Helper()
	s.swtpm.Stop(syscall.SIGTERM)
	s.swtpm.Again(t)
}

func (s *TPM) path(name string) string { return filepath.Join(s.folder, name) }

// manufacture does what a maker of TPMs does. All files are in the TPM's folder.
func (s *TPM) manufacture(t testing.TB) {
	t.Helper()
	write(t, s.path("setup.conf"), fmt.Sprintf("create_certs_tool = swtpm_localca\ncreate_certs_tool_config = %s\ncreate_certs_tool_options = %s\nactive_pcr_banks = sha256,sha1\n", s.path("ca.conf"), s.path("ca.options")))
	write(t, s.path("ca.conf"), fmt.Sprintf("statedir = %s\nsigningkey = %[1]s/key.pem\nissuercert = %[1]s/issuer.pem\ncertserial = %[1]s/serial\n", s.path("ca")))
	write(t, s.path("ca.options"), "--platform-manufacturer Outrigger\n--platform-version 1\n--platform-model test\n")
	if err := os.Mkdir(s.path("ca"), 0o700); err != nil {
		t.Fatal(err)
	}
	args := []string{"--tpm2", "--config", s.path("setup.conf"), "--tpmstate", s.path("state"), "--create-ek-cert", "--lock-nvram"}
	if os.Geteuid() == 0 {
		args = append(args, "--runas", "root") // else tss, who cannot write here
	}
	if out, err := exec.Command("swtpm_setup", args...).CombinedOutput(); err != nil {
		t.Fatalf("swtpm_setup: %v\n%s", err, out)
	}
	pem, err := os.ReadFile(s.path("ca/issuer.pem"))
	if s.Roots = x509.NewCertPool(); err != nil || !s.Roots.AppendCertsFromPEM(pem) {
		t.Fatalf("the authority of swtpm_localca: %v", err)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
