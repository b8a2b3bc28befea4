// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/internal/procid"
	"github.com/outrigger/outrigger/provider"
)

const (
	// startWait is how long QEMU may take to set up a machine: 0.1 s on an
	// idle machine.
	startWait = 30 * time.Second
	// quitWait is how long QEMU may take to close its files.
	quitWait = 3 * time.Second
	// pollMonitor is how often the control socket of a QEMU that starts is
	// tried.
	pollMonitor = 2 * time.Millisecond
)

// start boots an instance, or restores it where there is a template.
func (p *Provider) start(ctx context.Context, r *record) error {
	if r.Template == "" {
		return p.startProcess(ctx, r, nil)
	}
	err := p.restore(ctx, r)
	var broken *brokenTemplate
	if ctx.Err() != nil || !errors.As(err, &broken) {
		return err
	}
	p.cfg.log().Warn("the VM boots: it could not be restored", "instance", r.ID, "folder", r.Template, "error", err)
	discardTemplate(r.Template, broken.folder)
	if err := p.end(ctx, r); err != nil {
		return err
	}
	r.Template = ""
	return p.startProcess(ctx, r, nil)
}

// startProcess runs QEMU for an instance in a session of its own, so that it outlives
// this process and whoever started it, and returns when the machine is set up. Files are
// those that its arguments name by descriptor.
func (p *Provider) startProcess(ctx context.Context, r *record, console []byte, files ...*os.File) error {
	folder := p.store.folder(r.ID)
	if err := errors.Join(removeFile(filepath.Join(folder, qmpName)), appendFile(filepath.Join(folder, consoleName), console)); err != nil {
		return err
	}
	output, err := os.OpenFile(filepath.Join(folder, outputName), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd, err := p.command(r, folder, output)
	if err != nil {
		return err
	}
	if r.TPM {
		tpm, err := p.startTPM(r)
		if err != nil {
			return err
		}
		defer tpm.Close()
		files = []*os.File{tpm} // nothing is restored with a TPM
	}
	cmd.ExtraFiles = files
	ended, err := begin(cmd)
	if err != nil {
		return err
	}
	id, err := procid.Of(cmd.Process.Pid)
	if err != nil {
		<-ended // it cannot be looked at: it is gone
		return p.startFailure(folder, nil)
	}
	r.Process = process(id)
	if err := p.store.instances().save(r); err != nil {
		return err
	}
	return p.awaitMachine(ctx, folder, ended)
}

func (p *Provider) command(r *record, folder string, output *os.File) (*exec.Cmd, error) {
	binary, err := p.binary()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, arguments(r, useVhost(r.Accel))...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, output, output
	cmd.Env = toolEnv
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, nil
}

// begin starts a command; the channel is closed when it has ended.
func begin(cmd *exec.Cmd) (<-chan struct{}, error) {
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait() // collects it if it ends before we do
		close(ended)
	}()
	return ended, nil
}

func (p *Provider) awaitMachine(ctx context.Context, folder string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		monitor, err := dialMonitor(ctx, folder)
		if err == nil {
			monitor.close()
			return nil
		}
		select {
		case <-ended:
			if ctx.Err() == nil {
				return p.startFailure(folder, err)
			}
			return fmt.Errorf("%w: %w", provider.ErrUnavailable, p.startFailure(folder, err))
		case <-ctx.Done():
			return fmt.Errorf("%w: QEMU did not set up its machine: %w", provider.ErrUnavailable, errors.Join(context.Cause(ctx), p.startFailure(folder, nil)))
		case <-time.After(pollMonitor):
		}
	}
}

// startFailure adds to an error the output of QEMU before it ended.
func (p *Provider) startFailure(folder string, err error) error {
	output, readErr := tail(filepath.Join(folder, outputName), 2048)
	text := strings.TrimSpace(string(output))
	switch {
	case readErr != nil:
		return fmt.Errorf("QEMU ended while it started, and its output is lost: %w", readErr)
	case text == "":
		return fmt.Errorf("QEMU ended while it started and said nothing: %w", err)
	case strings.Contains(text, "annot allocate memory"), strings.Contains(text, "cannot set up guest memory"):
		return fmt.Errorf("%w: QEMU: %s", provider.ErrCapacity, text)
	}
	return fmt.Errorf("QEMU ended while it started: %s", text)
}

// end ends an instance's QEMU: it is asked to, and killed if it will not. Its TPM ends with it.
func (p *Provider) end(ctx context.Context, r *record) error {
	qemu := qemuOf(r)
	if qemu.Alive() && p.quit(ctx, r, qemu) != nil {
		if err := qemu.Kill(ctx); err != nil {
			return err
		}
	}
	return p.endTPM(ctx, r)
}

// qemuOf returns the QEMU of an instance, also one whose starter was killed before it wrote
// that down. It may have ended.
func qemuOf(r *record) procid.ID {
	if qemu := procid.ID(r.Process); qemu.Alive() {
		return qemu
	}
	return findByArgument(func(arg string) bool { return arg == r.UUID })
}

// findByArgument looks for a process that has such an argument on its command line: the
// QEMU of a provider that was killed before it wrote down whom it started.
func findByArgument(is func(arg string) bool) procid.ID {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err != nil || !slices.ContainsFunc(strings.Split(string(line), "\x00"), is) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if id, err := procid.Of(pid); err == nil && id.Alive() {
			return id
		}
	}
	return procid.ID{}
}

func (p *Provider) quit(ctx context.Context, r *record, qemu procid.ID) error {
	ctx, cancel := context.WithTimeout(ctx, quitWait)
	defer cancel()
	monitor, err := dialMonitor(ctx, p.store.folder(r.ID))
	if err != nil {
		return err
	}
	defer monitor.close()
	if err := monitor.execute("quit"); err != nil {
		return err
	}
	return qemu.Wait(ctx)
}

func (p *Provider) binary() (string, error) {
	path, err := exec.LookPath(p.cfg.Binary)
	if err != nil {
		return "", fmt.Errorf("%w: no QEMU: %w; install it with `apt-get install qemu-system-x86`, or set -qemu-binary", provider.ErrNotFound, err)
	}
	return path, nil
}

// useVhost: the kernel's packet carrier helps KVM guests, where it is there.
func useVhost(accel string) bool {
	return accel == AccelKVM && openable("/dev/vhost-net", os.O_RDWR) == nil
}

func createFile(path string) error { return appendFile(path, nil) }

// appendFile makes a file that only its owner can read, if there is none.
func appendFile(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// tail returns the last n bytes of a file.
func tail(path string, n int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, info.Size()-n)
	return io.ReadAll(io.NewSectionReader(file, from, info.Size()-from))
}
