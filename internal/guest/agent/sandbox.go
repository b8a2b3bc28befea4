// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/outrigger/outrigger/internal/guest/asked"
	"github.com/outrigger/outrigger/internal/guest/reaper"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// sandbox is the pod: what its containers share.
type sandbox struct {
	id        string
	hostname  string
	sharedPID bool
	dir       string // folder of its files
	dns       bool   // there is a resolv.conf
	pause     *reaper.Child

	mu     sync.Mutex
	mounts map[string]bool // made for storages, by path
}

// files are those in dir that every container has in /etc unless the caller mounts others.
func (s *sandbox) files() []string {
	if s.dns {
		return []string{"hostname", "hosts", "resolv.conf"}
	}
	return []string{"hostname", "hosts"}
}

// CreateSandbox starts the pod's namespaces and makes its storages.
func (a *Agent) CreateSandbox(ctx context.Context, req *agent.CreateSandboxRequest) (*emptypb.Empty, error) {
	began := marks.Uptime()
	sb := &sandbox{
		id: req.GetSandboxId(), hostname: req.GetHostname(), sharedPID: req.GetSandboxPidns(),
		dir: filepath.Join(a.cfg.StateDir, "sandbox"), dns: len(req.GetDns()) > 0, mounts: make(map[string]bool),
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sandbox != nil {
		return nil, status.Errorf(codes.AlreadyExists, "this VM has sandbox %q already", a.sandbox.id)
	}
	if len(req.GetKernelModules()) > 0 {
		return nil, status.Error(codes.Unimplemented, "kernel modules are loaded when the VM boots, not by this agent")
	}
	if err := a.checkAsked(); err != nil {
		return nil, err
	}
	if err := a.openConfidential(); err != nil {
		return nil, fail(codes.Internal, err)
	}
	if err := a.openSandbox(sb, req); err != nil {
		a.closeConfidential()
		return nil, fail(codes.Internal, errors.Join(err, a.closeSandbox(sb)))
	}
	a.sandbox = sb
	a.cfg.Marks.Note("create-sandbox", began, "")
	a.log.Info("sandbox created", "sandbox", sb.id, "hostname", sb.hostname)
	return &emptypb.Empty{}, nil
}

// checkAsked returns an error if the node asked for something that this agent
// does not have.
func (a *Agent) checkAsked() error {
	return asked.Check(a.cfg.Provisioned, func(file string) bool {
		switch file {
		case asked.Policy:
			return PolicyEngine != nil // see govern
		case asked.Attester, asked.DataHub:
			return NewConfidential != nil // see openConfidential
		}
		return false
	})
}

func (a *Agent) openSandbox(sb *sandbox, req *agent.CreateSandboxRequest) (err error) {
	if err := sb.writeFiles(req.GetDns()); err != nil {
		return err
	}
	if sb.pause, err = a.takePause(sb.hostname); err != nil {
		return err
	}
	for _, storage := range req.GetStorages() {
		if err := a.addStorage(sb, storage); err != nil {
			return err
		}
	}
	return a.rememberSandbox(sb)
}

func (s *sandbox) writeFiles(dns []string) error {
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	if s.hostname != "" {
		hosts += "127.0.1.1\t" + s.hostname + "\n"
	}
	resolv := strings.TrimRight(strings.Join(dns, "\n"), "\n") + "\n"
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	for name, content := range map[string]string{"hosts": hosts, "hostname": s.hostname + "\n", "resolv.conf": resolv} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// DestroySandbox removes the pod with all its containers. Without one it
// succeeds.
func (a *Agent) DestroySandbox(ctx context.Context, _ *agent.DestroySandboxRequest) (*emptypb.Empty, error) {
	a.mu.Lock()
	sb := a.sandbox
	ids := slices.Collect(maps.Keys(a.containers))
	a.mu.Unlock()
	var errs []error
	for _, id := range ids {
		_, err := a.RemoveContainer(ctx, &agent.RemoveContainerRequest{ContainerId: id})
		errs = append(errs, err)
	}
	a.closeConfidential()
	if sb != nil {
		errs = append(errs, a.closeSandbox(sb), a.images.Forget())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := errors.Join(errs...); err != nil {
		return nil, fail(codes.Internal, fmt.Errorf("destroy sandbox: %w", err))
	}
	if a.sandbox == sb {
		a.sandbox = nil
	}
	return &emptypb.Empty{}, nil
}

// closeSandbox undoes openSandbox, wherever that stopped; it can be repeated.
func (a *Agent) closeSandbox(sb *sandbox) error {
	var errs []error
	if sb.pause != nil {
		errs = append(errs, a.reaper.Kill(sb.pause))
	}
	var remote []string
	sb.mu.Lock()
	for path := range sb.mounts {
		if filepath.Base(filepath.Dir(path)) == networkVolumes {
			remote = append(remote, path)
			delete(sb.mounts, path)
			continue
		}
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
			errs = append(errs, &os.PathError{Op: "unmount", Path: path, Err: err})
			continue
		}
		delete(sb.mounts, path)
	}
	sb.mu.Unlock()
	errs = append(errs, a.unmountNFS(remote))
	if err := errors.Join(errs...); err != nil {
		return err // what is still mounted must not be emptied
	}
	for _, dir := range []string{sb.dir, filepath.Join(a.cfg.Root, "shared"), filepath.Join(a.cfg.Root, "sandbox")} {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

func (a *Agent) theSandbox() (*sandbox, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.sandbox == nil:
		return nil, status.Error(codes.FailedPrecondition, "there is no sandbox yet: call CreateSandbox first")
	case a.sandbox.pause.Ended():
		return nil, status.Error(codes.FailedPrecondition, "the sandbox's pause process has ended, and its namespaces with it")
	}
	return a.sandbox, nil
}
