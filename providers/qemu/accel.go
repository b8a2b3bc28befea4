// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/kvm"
	"github.com/outrigger/outrigger/internal/localnet/statefile"
)

const kvmDevice = "/dev/kvm"

// verdict is accel.json: whether guests run on KVM, and under which
// circumstances that was found out.
type verdict struct {
	Host string `json:"host"`
	KVM  bool   `json:"kvm"`
	Why  string `json:"why"`
}

// accelerator returns kvm or tcg.
func (p *Provider) accelerator(ctx context.Context) (string, error) {
	if p.cfg.Accel != AccelAuto {
		return p.cfg.Accel, nil
	}
	p.accelMu.Lock()
	defer p.accelMu.Unlock()
	if p.accel != "" {
		return p.accel, nil
	}
	v, err := p.judgeKVM(ctx)
	if err != nil {
		return "", err
	}
	p.accel = AccelKVM
	if !v.KVM {
		p.accel = AccelTCG
		p.cfg.log().Warn("guests run in emulation (TCG), which is slower: KVM is of no use here", "why", v.Why)
	}
	return p.accel, nil
}

// judgeKVM boots a guest unless it is plain that none would run. Only an
// answer that took a guest is worth remembering.
func (p *Provider) judgeKVM(ctx context.Context) (verdict, error) {
	if why := kvmUnusable(); why != "" {
		return verdict{Why: why}, nil
	}
	host := p.circumstances(ctx)
	path := filepath.Join(p.store.dir, "accel.json")
	var known verdict
	if err := statefile.Read(path, &known); err == nil && known.Host == host {
		return known, nil
	}
	v := verdict{Host: host, KVM: true}
	if err := p.probeGuest(ctx, AccelKVM); err != nil {
		if ctx.Err() != nil {
			return verdict{}, context.Cause(ctx) // the caller's end proves nothing
		}
		v.KVM, v.Why = false, err.Error()
	}
	if err := errors.Join(os.MkdirAll(p.store.dir, 0o700), statefile.Write(path, v)); err != nil {
		p.cfg.log().Warn("the KVM probe will be repeated: its answer cannot be written down", "error", err)
	}
	return v, nil
}

// kvmUnusable returns why no guest can run on KVM here, where that is plain.
func kvmUnusable() string {
	if err := openable(kvmDevice, os.O_RDWR); err != nil {
		return err.Error()
	}
	return kvm.Impossible("/")
}

// circumstances returns everything that may change the result of a probe.
func (p *Provider) circumstances(ctx context.Context) string {
	var uts unix.Utsname
	_ = unix.Uname(&uts)
	version := "?"
	if out, err := exec.CommandContext(ctx, p.cfg.Binary, "--version").Output(); err == nil {
		version, _, _ = strings.Cut(string(out), "\n")
	}
	return fmt.Sprintf("Linux %s, %s, %s", unix.ByteSliceToString(uts.Release[:]), version, cpuModelName())
}

func cpuModelName() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}

// probeGuest boots a guest that says so when it has reached user space, and
// returns why that did not happen before the probe's deadline.
func (p *Provider) probeGuest(ctx context.Context, accel string) error {
	folder, err := os.MkdirTemp("", "outrigger-probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	args, err := p.probeArguments(folder, accel)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.ProbeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.cfg.Binary, args...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	found := scanFor(bufio.NewReader(out), probeMarker)
	cancel()
	cmd.Wait()
	if found {
		return nil
	}
	return fmt.Errorf("a probe guest did not reach user space within %v %s", p.cfg.ProbeTimeout, strings.TrimSpace(complaints.String()))
}

// scanFor reads until the marker; a console has no lines to rely on.
func scanFor(r *bufio.Reader, marker string) bool {
	matched := 0
	for matched < len(marker) {
		b, err := r.ReadByte()
		switch {
		case err != nil:
			return false
		case b == marker[matched]:
			matched++
		case b == marker[0]:
			matched = 1
		default:
			matched = 0
		}
	}
	return true
}

// probeArguments prefers the kernel that the pods will run on. Where a disk
// brings its own, a boot sector has to do, which proves less.
func (p *Provider) probeArguments(folder, accel string) ([]string, error) {
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-machine", "q35,accel=" + accel, "-cpu", cpuModel(accel), "-m", "128",
	}
	from, err := p.configuredBoot()
	if err != nil {
		return nil, err
	}
	if from.Firmware != "" {
		path := filepath.Join(folder, "sector.img")
		args = append(args, "-drive", "if=none,id=sector,format=raw,file="+path, "-device", "virtio-blk-pci,drive=sector")
		return args, os.WriteFile(path, probeDisk(), 0o600)
	}
	path := filepath.Join(folder, "initrd.cpio")
	args = append(args, "-kernel", from.Kernel, "-initrd", path, "-append", appendAll+" rdinit=/init")
	return args, os.WriteFile(path, probeInitrd(), 0o600)
}
