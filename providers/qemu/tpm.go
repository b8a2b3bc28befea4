// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/internal/procid"
)

// A VM's TPM is a swtpm of its own. It and QEMU talk on a pair of sockets that nobody else has, and it ends when QEMU
// does. One that QEMU never spoke to, because this process was killed in between, does not end by itself: whoever ends or
// removes an instance looks for all processes with the name of its TPM's folder, which nothing else has.

// Values of Config.TPM.
const (
	TPMOff = "off"
	TPMOn  = "on"
	// TPMUEFI gives one to VMs whose image boots by UEFI.
	TPMUEFI = "uefi"
)

// Names in the state folder's TPMAuthority.
const (
	// TPMAuthority is the folder of the authority that signs the certificates of the TPMs' endorsement keys.
	TPMAuthority    = "tpm-ca"
	tpmCertificate  = "ca.pem"
	tpmAuthorityKey = "key.pem"
)

// authorityYears is how long the authority lasts. Its certificates are in the TPMs of VMs, which are gone earlier.
const authorityYears = 20

// toolEnv is the environment of swtpm and its tools.
var toolEnv = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}

// tpmFolder is where an instance's TPM has its state. Its name is in no other instance, and in the arguments of all
// processes that use it.
func (p *Provider) tpmFolder(r *record) string { return p.store.file(r.ID, "tpm-"+r.UUID) }

func tpmArguments() []string {
	return []string{
		"-chardev", fmt.Sprintf("socket,id=tpm,fd=%d", tpmFD),
		"-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-crb,tpmdev=tpm0",
	}
}

// makeTPM manufactures an instance's TPM, if it is to have one, with a certificate of its endorsement key. It takes
// a second, and may run beside other preparations.
func (p *Provider) makeTPM(ctx context.Context, r *record) error {
	if !r.TPM {
		return nil
	}
	authority, err := p.tpmAuthority(ctx)
	if err != nil {
		return fmt.Errorf("authority of the TPMs: %w", err)
	}
	folder := p.tpmFolder(r)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	files, err := tpmSetup(folder, authority)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	env := append(slices.Clone(toolEnv), "TMPDIR="+folder) // so that what it leaves when it is killed goes with the instance
	return runWith(ctx, env, "swtpm_setup", "--tpm2", "--config", filepath.Join(folder, "setup.conf"), "--vmid", r.ID,
		"--create-ek-cert", "--pcr-banks", "sha256", "--tpmstate", folder)
}

// tpmSetup returns the settings of swtpm_setup and swtpm_localca. The next serial number is in the VM's own folder and
// begins at random: nothing that two of them write is shared.
func tpmSetup(folder, authority string) (map[string]string, error) {
	localca, err := lookTool("swtpm_localca")
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	in := func(name string) string { return filepath.Join(folder, name) }
	return map[string]string{
		"setup.conf": fmt.Sprintf("create_certs_tool = %s\ncreate_certs_tool_config = %s\ncreate_certs_tool_options = %s\n",
			localca, in("localca.conf"), in("localca.options")),
		"localca.conf": fmt.Sprintf("statedir = %s\nsigningkey = %s\nissuercert = %s\ncertserial = %s\n",
			folder, filepath.Join(authority, tpmAuthorityKey), filepath.Join(authority, tpmCertificate), in("serial")),
		"localca.options": "",
		"serial":          serial.String(),
	}, nil
}

// tpmAuthority returns the folder of the authority, which it makes if there is none. It stays when the last instance
// goes: brokers trust it.
func (p *Provider) tpmAuthority(ctx context.Context) (string, error) {
	folder := filepath.Join(p.store.dir, TPMAuthority)
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		return folder, err
	}
	lock, err := statefile.Acquire(ctx, lockFile(p.store.dir, TPMAuthority))
	if err != nil {
		return "", err
	}
	defer lock.ReleaseAndRemove()
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		return folder, err
	}
	staged := filepath.Join(p.store.dir, newPrefix+TPMAuthority)
	if err := errors.Join(os.RemoveAll(staged), os.Mkdir(staged, 0o700), writeAuthority(staged)); err != nil {
		return "", err
	}
	return folder, errors.Join(os.Rename(staged, folder), statefile.SyncFolder(p.store.dir))
}

func writeAuthority(folder string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Outrigger software TPM authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(authorityYears, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		writePEM(filepath.Join(folder, tpmAuthorityKey), "PRIVATE KEY", der),
		writePEM(filepath.Join(folder, tpmCertificate), "CERTIFICATE", certificate),
		statefile.SyncFolder(folder))
}

func writePEM(path, kind string, der []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(pem.Encode(file, &pem.Block{Type: kind, Bytes: der}), file.Sync(), file.Close())
}

// startTPM starts the swtpm of an instance that has none running, and returns QEMU's end of the sockets.
func (p *Provider) startTPM(r *record) (*os.File, error) {
	binary, err := lookTool("swtpm")
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, its := os.NewFile(uintptr(pair[0]), "tpm"), os.NewFile(uintptr(pair[1]), "tpm")
	defer its.Close()
	output, err := os.OpenFile(filepath.Join(p.tpmFolder(r), "swtpm.log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	defer output.Close()
	cmd := exec.Command(binary, "socket", "--tpm2", "--terminate",
		"--tpmstate", "dir="+p.tpmFolder(r), "--ctrl", fmt.Sprintf("type=unixio,clientfd=%d", tpmFD))
	cmd.ExtraFiles = []*os.File{its}
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = toolEnv
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if _, err := begin(cmd); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	return ours, nil
}

// endTPM ends what works on an instance's TPM: its swtpm, and a swtpm_setup and its children of a process that was
// killed. What they have to keep is written at once, so that they are not asked.
func (p *Provider) endTPM(ctx context.Context, r *record) error {
	if !r.TPM {
		return nil
	}
	for {
		id := p.tpmProcess(r)
		if id.PID == 0 {
			return nil
		}
		if err := id.Kill(ctx); err != nil {
			return fmt.Errorf("end swtpm: %w", err)
		}
	}
}

// tpmProcess returns a process that works on an instance's TPM; the zero ID if there is none.
func (p *Provider) tpmProcess(r *record) procid.ID {
	return findByArgument(func(arg string) bool { return strings.Contains(arg, p.tpmFolder(r)) })
}
