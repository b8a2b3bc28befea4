// SPDX-License-Identifier: Apache-2.0

//go:build integration

package qemu

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/guest/image"
	"github.com/outrigger/outrigger/internal/guest/measure"
	"github.com/outrigger/outrigger/internal/procid"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/test/tier"
)

// needTPM skips a test where a tool is missing.
func needTPM(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"swtpm", "swtpm_setup"} {
		if _, err := lookTool(tool); err != nil {
			t.Skip(err)
		}
	}
	if err := checkFile(firmware, DefaultConfig().Firmware); err != nil {
		t.Skip(err)
	}
}

var probeImage = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "probe-image-")
	if err != nil {
		return "", err
	}
	bins := filepath.Join(dir, "bin")
	for name, pkg := range map[string]string{"podvm-init": "cmd/podvm-init", "podvm-agent": "test/podvmprobe"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(bins, name), "github.com/outrigger/outrigger/"+pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
	}
	for _, name := range []string{"process-user-data", "agent-protocol-forwarder"} {
		if err := os.Symlink("podvm-agent", filepath.Join(bins, name)); err != nil {
			return "", err
		}
	}
	_, err = image.Build(context.Background(), image.Options{
		Output: dir, Cache: filepath.Join(cache, "outrigger", "podvm"), Binaries: bins,
		Formats: []string{image.FormatUKI, image.FormatQcow2}, Cmdline: image.DefaultCmdline, Confidential: true,
	})
	return dir, err
})

// tpmConfig boots an image that reports its TPM.
func tpmConfig(t *testing.T, change ...func(*Config)) (cfg Config, dir string) {
	t.Helper()
	needTPM(t)
	dir, err := probeImage()
	if err != nil {
		t.Fatal(err)
	}
	return testConfig(t, append([]func(*Config){func(c *Config) {
		c.TPM, c.Kernel, c.Initrd, c.Memory = TPMOn, filepath.Join(dir, "podvm.efi"), "", 512
	}}, change...)...), dir
}

// TestPCRsAreThoseThatWereMeasured compares what podvm-image measure says with the TPMs of VMs that have booted.
func TestPCRsAreThoseThatWereMeasured(t *testing.T) {
	t.Run("direct", func(t *testing.T) {
		comparePCRs(t, func(*Config, string) {}, func(e *measure.Expected) measure.Digest { return e.Direct4 })
	})
	t.Run("disk", func(t *testing.T) {
		tier.OnlyAll(t) // another ten seconds for one digest
		comparePCRs(t, func(c *Config, dir string) { c.Kernel, c.Disk = "", filepath.Join(dir, "podvm.qcow2") },
			func(e *measure.Expected) measure.Digest { return e.Disk4 })
	})
}

var pcrLine = regexp.MustCompile(`PROBE pcr (\d+) ([0-9a-f]{64})`)

func comparePCRs(t *testing.T, change func(*Config, string), pcr4 func(*measure.Expected) measure.Digest) {
	cfg, dir := tpmConfig(t)
	change(&cfg, dir)
	uki, err := os.ReadFile(filepath.Join(dir, "podvm.efi"))
	if err != nil {
		t.Fatal(err)
	}
	expected, err := measure.UKI(uki)
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, cfg)
	begin := time.Now()
	i := create(t, p, "sandbox-1")
	t.Logf("CreateInstance took %v", time.Since(begin))
	awaitConsoleFor(t, p, i, "PROBE done", 3*bootWait) // the firmware takes ten seconds on an idle machine
	t.Logf("booted after %v", time.Since(begin))
	console, err := p.Console(t.Context(), i.ID, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range pcrLine.FindAllStringSubmatch(string(console), -1) {
		got[m[1]] = m[2]
	}
	for pcr, want := range map[string]measure.Digest{"4": pcr4(expected), "9": expected.PCR9, "11": expected.PCR11, "12": expected.PCR12} {
		if got[pcr] != want.String() {
			t.Errorf("PCR %s is %q, predicted was %s", pcr, got[pcr], want)
		}
	}
	for _, want := range []string{"PROBE tpm /dev/tpm0 <nil>", "PROBE tpm /dev/tpmrm0 <nil>", "in the container as pid 1 on crun <nil>"} {
		if !strings.Contains(string(console), want) {
			t.Errorf("the console does not say %q:\n%s", want, console)
		}
	}
	// The log begins with an event that says what it is (TCG PC Client Platform Firmware Profile 1.05, 10.4.5.1).
	m := regexp.MustCompile(`PROBE eventlog (\S{64})`).FindSubmatch(console)
	if m == nil {
		t.Fatalf("no event log:\n%s", console)
	}
	if head, err := base64.StdEncoding.DecodeString(string(m[1])); err != nil || !bytes.Contains(head, []byte("Spec ID Event03")) {
		t.Errorf("the event log begins with %q, %v", head, err)
	}
}

// TestTPMHasACertificateOfTheAuthority looks into the TPM's memory, which has the certificate as it is.
func TestTPMHasACertificateOfTheAuthority(t *testing.T) {
	cfg, _ := tpmConfig(t)
	p := open(t, cfg)
	i := create(t, p, "sandbox-1")
	r, err := p.existing(i.ID)
	if err != nil {
		t.Fatal(err)
	}
	authority := filepath.Join(cfg.StateDir, TPMAuthority)
	checkMode(t, authority, 0o700)
	checkMode(t, filepath.Join(authority, tpmAuthorityKey), 0o600)
	checkMode(t, p.tpmFolder(r), 0o700)
	data, err := os.ReadFile(filepath.Join(authority, tpmCertificate))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.ReadFile(filepath.Join(p.tpmFolder(r), "tpm2-00.permall"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for at := range memory {
		if !bytes.HasPrefix(memory[at:], []byte{0x30, 0x82}) || len(memory) < at+4 { // a long SEQUENCE of DER
			continue
		}
		end := min(len(memory), at+4+int(memory[at+2])<<8+int(memory[at+3]))
		if cert, err := x509.ParseCertificate(memory[at:end]); err == nil && cert.CheckSignatureFrom(ca) == nil {
			found++
		}
	}
	if found != 2 { // of an RSA and of an elliptic curve key
		t.Errorf("the TPM has %d certificates of the authority, want 2", found)
	}
}

// TestTPMEndsWithItsVM: also when QEMU, the TPM or the maker of both was killed.
func TestTPMEndsWithItsVM(t *testing.T) {
	cfg, _ := tpmConfig(t)
	p := open(t, cfg)
	i := create(t, p, "sandbox-1")
	r, err := p.existing(i.ID)
	if err != nil {
		t.Fatal(err)
	}
	tpm := func() procid.ID { return p.tpmProcess(r) }
	ended := func(id procid.ID) {
		t.Helper()
		if !id.WaitGone(bootWait) {
			t.Errorf("swtpm %d runs on", id.PID)
		}
	}
	first := tpm()
	if !first.Alive() {
		t.Fatal("no swtpm runs")
	}
	if err := procid.ID(r.Process).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended(first) // by itself
	if err := p.PowerOn(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	if second := tpm(); !second.Alive() {
		t.Error("no swtpm runs after PowerOn")
	} else if err := second.Signal(syscall.SIGSTOP); err != nil {
		t.Error(err)
	} else if err := p.PowerOff(t.Context(), i.ID); err != nil {
		t.Error(err)
	} else {
		ended(second) // though it hung
	}
	// As by a starter that was killed before it started QEMU.
	qemu, err := p.startTPM(r)
	if err != nil {
		t.Fatal(err)
	}
	third := tpm()
	qemu.Close()
	if !third.Alive() {
		t.Error("the third swtpm did not start")
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	ended(third)
}

func TestMakerOfATPMKilledAtAnyInstant(t *testing.T) {
	cfg, _ := tpmConfig(t)
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for round := range tier.Rounds(t, 8, 24) {
		p := open(t, cfg)
		killAfter(t, string(text), time.Duration(round*173)*time.Millisecond)
		i := create(t, p, "sandbox-1")
		if n := countProcesses(t, "swtpm"); n != 1 {
			t.Fatalf("round %d: %d processes of swtpm, want 1", round, n)
		}
		if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
			t.Fatal(err)
		}
		nothingLeft(t, cfg)
	}
}

// TestConformanceWithTPM has the checks of a VM's life.
func TestConformanceWithTPM(t *testing.T) {
	ran := 0
	for _, check := range conformance.Checks() {
		if check.Name != "create" && check.Name != "delete" && !strings.HasPrefix(check.Name, "power") {
			continue
		}
		ran++
		t.Run(check.Name, func(t *testing.T) {
			check.Run(t, func(conformance.T) conformance.Subject {
				cfg, _ := tpmConfig(t)
				reopen := func() provider.Provider { return open(t, cfg) }
				return conformance.Subject{Provider: reopen(), Reopen: reopen, Leaks: func() ([]string, error) {
					left := leaks(t, cfg)
					if len(left) == 1 && filepath.Base(left[0]) == TPMAuthority {
						left = nil
					}
					return left, nil
				}}
			})
		})
	}
	if ran < 3 {
		t.Errorf("%d checks ran: they have other names", ran)
	}
}
