// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/outrigger/outrigger/internal/localnet"
	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/provider"
)

// Provider runs VMs on this machine. Several processes may have one on the
// same state folder at a time.
type Provider struct {
	cfg   Config
	store store
	net   *localnet.Network

	// accelMu guards accel, empty until a probe has answered.
	accelMu sync.Mutex
	accel   string

	// upkeep is the work in the background, which stop ends.
	upkeep sync.WaitGroup
	stop   context.CancelFunc
}

// New checks cfg. It makes nothing; QEMU and the image may still be missing,
// which ConfigVerifier and CreateInstance report, so that instances can be
// listed and deleted without them.
func New(cfg Config) (*Provider, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Provider{cfg: cfg}
	if from, err := p.configuredBoot(); err == nil { // it may still be missing
		if err := enoughMemory(from, cfg.Memory); err != nil {
			return nil, bad("memory", "%v", err)
		}
	}
	dir, err := filepath.Abs(cfg.StateDir)
	if err != nil {
		return nil, bad("state-dir", "%v", err)
	}
	network, err := localnet.Open(localnet.Config{
		Bridge: cfg.Bridge, Subnets: cfg.subnets(), MTU: cfg.MTU, StateDir: filepath.Join(dir, "net"),
	})
	if err != nil {
		return nil, fmt.Errorf("%w: -qemu-bridge, -qemu-subnet, -qemu-subnet6 or -qemu-mtu: %w", provider.ErrInvalidArgument, err)
	}
	p.store, p.net = store{dir}, network
	if cfg.TPM != TPMOff { // so that brokers can have its certificate before there is a VM
		if _, err := p.tpmAuthority(context.Background()); err != nil {
			return nil, fmt.Errorf("the authority that certifies TPMs: %w", err)
		}
	}
	p.store.tidy()
	if _, err := pruneOld(cfg.TemplateDir); err != nil {
		cfg.log().Warn("saved VMs of earlier boots of this machine stay", "folder", cfg.TemplateDir, "error", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.upkeep.Go(func() { p.trimConsoles(ctx) })
	if cfg.Addressing == AddressingDHCP {
		p.upkeep.Go(func() { p.serveDHCP(ctx) })
	}
	return p, nil
}

// Teardown ends this process's part; VMs run on.
func (p *Provider) Teardown() error {
	p.stop()
	p.upkeep.Wait()
	return nil
}

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (*provider.Instance, error) {
	r, err := p.existing(instanceID)
	if err != nil {
		return nil, err
	}
	return r.instance(), nil
}

func (p *Provider) existing(id string) (*record, error) {
	r, err := p.store.instances().existing(id)
	return r, classify(err)
}

// ListInstances implements provider.Lister.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	records, err := p.store.instances().list()
	if err != nil {
		return nil, classify(err)
	}
	var list []provider.Instance
	for _, r := range records {
		if provider.HasTags(r.Tags, match) {
			list = append(list, *r.instance())
		}
	}
	return list, nil
}

// NodeAddress returns the bridge's address.
func (p *Provider) NodeAddress(ctx context.Context) (netip.Addr, error) {
	return p.net.Gateways()[0], nil
}

// PowerOff ends the VM and keeps its disks. The guest is not asked: to the
// kernel on it, it is a loss of power.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) error {
	return p.whileLocked(ctx, instanceID, func(r *record) error { return p.end(ctx, r) })
}

// PowerOn starts a VM that is off.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) error {
	return p.whileLocked(ctx, instanceID, func(r *record) error {
		if r.alive() {
			return nil
		}
		// One that was started by a process killed before it wrote that down.
		if err := p.end(ctx, r); err != nil {
			return err
		}
		// After a reboot of this machine the network has to be made again.
		if err := p.attach(r); err != nil {
			return err
		}
		r.Template = "" // its seed's random bytes have been used
		return p.startWithDisks(ctx, r)
	})
}

// whileLocked runs do on a complete instance that nobody else works on.
func (p *Provider) whileLocked(ctx context.Context, id string, do func(*record) error) error {
	r, err := p.existing(id)
	if err != nil {
		return err
	}
	lock, err := statefile.Acquire(ctx, p.store.instances().lockPath(r.Key))
	if err != nil {
		return classify(err)
	}
	defer lock.Release()
	if r, err = p.existing(id); err != nil {
		return err
	}
	if r.Phase != phaseReady {
		return fmt.Errorf("%w: instance %s is %s", provider.ErrUnavailable, id, r.Phase)
	}
	return classify(do(r))
}

// classify gives errors of the system and of localnet their class.
func classify(err error) error {
	if err == nil || provider.Class(err) != provider.ErrUnknown {
		return err
	}
	for class, causes := range map[error][]error{
		provider.ErrCapacity:         {syscall.ENOSPC, syscall.EDQUOT, syscall.ENOMEM, localnet.ErrFull},
		provider.ErrPermissionDenied: {fs.ErrPermission, syscall.EROFS},
		provider.ErrInvalidArgument:  {localnet.ErrClash},
		provider.ErrUnavailable:      {context.Canceled, context.DeadlineExceeded},
	} {
		for _, cause := range causes {
			if errors.Is(err, cause) {
				return fmt.Errorf("%w: %w", class, err)
			}
		}
	}
	return err
}

// ConfigVerifier reports everything that keeps instances from being made. It
// attaches a tap and removes it again: nothing less shows that the network can
// be had.
func (p *Provider) ConfigVerifier() error {
	_, binaryErr := p.binary()
	_, bootErr := p.configuredBoot()
	_, _, sizeErr := p.size(provider.InstanceTypeSpec{})
	return errors.Join(binaryErr, classify(bootErr), sizeErr, p.verifyTools(), p.verifyTPM(), p.verifyAccel(), classify(p.verifyNetwork()))
}

func (p *Provider) verifyTools() error {
	var scratchErr, diskErr error
	if p.cfg.ScratchDisk > 0 {
		_, scratchErr = lookTool("mke2fs")
	}
	if p.cfg.Disk != "" {
		_, diskErr = lookTool("qemu-img")
	}
	return errors.Join(scratchErr, diskErr)
}

func (p *Provider) verifyTPM() error {
	if p.cfg.TPM == TPMOff {
		return nil
	}
	var errs []error
	for _, tool := range []string{"swtpm", "swtpm_setup", "swtpm_localca"} {
		_, err := lookTool(tool)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (p *Provider) verifyAccel() error {
	if p.cfg.Accel != AccelKVM {
		return nil
	}
	if err := openable(kvmDevice, os.O_RDWR); err != nil {
		return classify(fmt.Errorf("-qemu-accel=kvm: %w", err))
	}
	return nil
}

func (p *Provider) verifyNetwork() error {
	id := fmt.Sprintf("verify-%d", os.Getpid())
	_, err := p.net.AttachTap(id)
	err = errors.Join(err, p.net.Detach(id))
	p.store.tidy()
	return err
}
