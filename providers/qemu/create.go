// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/outrigger/outrigger/internal/localnet"
	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/internal/nocloud"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// undoWait is how long the removal of what a failed creation left may take.
// The caller's context may have ended already.
const undoWait = 30 * time.Second

// CreateInstance implements provider.Provider. It returns when QEMU has set up
// the machine; the guest boots after that. A key that is taken returns its
// instance whatever the other arguments say.
func (p *Provider) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	lock, err := statefile.Acquire(ctx, p.store.instances().lockPath(sandboxID))
	if err != nil {
		return nil, classify(fmt.Errorf("create instance: %w", err))
	}
	r, err := p.findOrMake(ctx, podName, sandboxID, cloudConfig, spec)
	if r == nil {
		lock.ReleaseAndRemove()
		p.store.tidy()
		return nil, classify(err)
	}
	lock.Release()
	return r.instance(), classify(err)
}

// findOrMake returns a record, also beside an error, when one is on disk.
func (p *Provider) findOrMake(ctx context.Context, podName, key string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*record, error) {
	existing, err := p.store.instances().byKey(key)
	if err != nil || existing != nil && existing.Phase == phaseReady {
		return existing, err
	}
	if existing != nil {
		// Its maker was killed, else it would hold the lock.
		p.cfg.log().Info("removing a partly created instance", "instance", existing.ID, "sandbox", key)
		if err := p.discard(ctx, existing); err != nil {
			return existing, fmt.Errorf("remove partly created instance %s: %w", existing.ID, err)
		}
	}
	r, err := p.plan(ctx, podName, key, spec)
	if err != nil {
		return nil, fmt.Errorf("create instance: %w", err)
	}
	userData, err := userdata.Generate(cloudConfig)
	if err != nil {
		return nil, err
	}
	if err := p.store.instances().claim(r, provider.InstanceName(podName, key)); err != nil {
		return nil, fmt.Errorf("create instance: %w", err)
	}
	if err := p.build(ctx, r, userData); err != nil {
		return p.undo(ctx, r, fmt.Errorf("create instance %s: %w", r.ID, err))
	}
	return r, nil
}

func (p *Provider) undo(ctx context.Context, r *record, cause error) (*record, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	if err := p.discard(ctx, r); err != nil {
		return r, errors.Join(cause, fmt.Errorf("remove what was made: %w", err))
	}
	return nil, cause
}

// plan decides everything about an instance before anything of it exists.
func (p *Provider) plan(ctx context.Context, podName, key string, spec provider.InstanceTypeSpec) (*record, error) {
	cpus, memory, err := p.size(spec)
	if err != nil {
		return nil, err
	}
	from, err := p.bootFrom(spec.Image)
	if err != nil {
		return nil, err
	}
	if err := enoughMemory(from, memory); err != nil {
		return nil, fmt.Errorf("%w: %w; ask for more, or set -qemu-memory (QEMU_MEMORY)", provider.ErrInvalidArgument, err)
	}
	if _, err := p.binary(); err != nil {
		return nil, err
	}
	accel, err := p.accelerator(ctx)
	if err != nil {
		return nil, err
	}
	return &record{
		Key: key, UUID: uuid.NewString(), Pod: podName, Tags: spec.Tags, Created: time.Now().UTC().Truncate(time.Second),
		Phase: phaseMaking, CPUs: cpus, Memory: memory, Accel: accel, Boot: from,
		Append: p.cfg.Append, Scratch: p.cfg.ScratchDisk, TPM: p.cfg.TPM == TPMOn || p.cfg.TPM == TPMUEFI && from.Firmware != "",
	}, nil
}

// build makes everything that a planned instance consists of.
func (p *Provider) build(ctx context.Context, r *record, userData string) error {
	ctx, cancel := context.WithCancel(ctx)
	var beside errgroup.Group
	beside.Go(func() error { return p.makeTPM(ctx, r) })
	defer beside.Wait()
	defer cancel()
	steps := []struct {
		name string
		do   func() error
	}{
		{"attach network", func() error { return p.attach(r) }},
		{"find template", func() error { return p.findTemplate(ctx, r) }},
		{"write seed", func() error { return p.writeSeed(r, userData) }},
		{"make disks", func() error { return p.makeDisks(ctx, r) }},
		{"make TPM", beside.Wait},
		{"start QEMU", func() error { return p.start(ctx, r) }},
		{"record", func() error {
			r.Phase = phaseReady
			return p.store.instances().save(r)
		}},
	}
	for _, step := range steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// attach needs no record of its own: the lease has the instance's id.
func (p *Provider) attach(r *record) error {
	port, err := p.net.AttachTap(r.ID)
	if err != nil {
		return err
	}
	r.Interface, r.MAC = port.Interface, port.MAC.String()
	r.Addrs, r.Gateways, r.MTU = port.Addrs, port.Gateways, port.MTU
	return nil
}

func (p *Provider) writeSeed(r *record, userData string) error {
	image, err := seed(r, userData, p.cfg.Addressing == AddressingDHCP, p.guestDNS())
	if err != nil {
		return err
	}
	return os.WriteFile(p.store.file(r.ID, seedName), image, 0o600)
}

func (p *Provider) guestDNS() []netip.Addr {
	if len(p.cfg.DNS) > 0 {
		return p.cfg.DNS
	}
	_, servers, _ := localnet.ResolvConf()
	return servers
}

// DeleteInstance implements provider.Provider.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) error {
	r, err := p.store.instances().load(instanceID)
	if err != nil || r == nil {
		return classify(err)
	}
	lock, err := statefile.Acquire(ctx, p.store.instances().lockPath(r.Key))
	if err != nil {
		return classify(fmt.Errorf("delete instance %s: %w", instanceID, err))
	}
	if r, err = p.store.instances().load(instanceID); err == nil && r != nil {
		err = p.discard(ctx, r)
	}
	if err != nil {
		lock.Release()
		return classify(fmt.Errorf("delete instance %s: %w", instanceID, err))
	}
	lock.ReleaseAndRemove()
	p.store.tidy()
	return nil
}

// discard removes an instance in whatever state it is; the record goes last.
func (p *Provider) discard(ctx context.Context, r *record) error {
	r.Phase = phaseDeleting
	// For whoever lists it. On a full disk it cannot be written, and deletion
	// is what makes room.
	_ = p.store.instances().save(r)
	if err := p.end(ctx, r); err != nil {
		return fmt.Errorf("stop QEMU: %w", err)
	}
	for _, name := range []string{seedName, scratchName, overlayName} {
		if err := removeFile(filepath.Join(p.store.folder(r.ID), name)); err != nil {
			return err
		}
	}
	if err := p.letAllGo(ctx, r.ID); err != nil {
		return err
	}
	if err := p.net.Detach(r.ID); err != nil {
		return err
	}
	return p.store.instances().remove(r.ID)
}

// guestInterface is the name of the VM's interface.
const guestInterface = "eth0"

// networkOf returns a guest's network configuration. With DHCP it asks for the
// IPv4 part of them; there is no DHCPv6.
func networkOf(r *record, dhcp bool, dns []netip.Addr) nocloud.Network {
	eth := nocloud.Ethernet{Match: nocloud.Match{MACAddress: r.MAC}, SetName: guestInterface, MTU: r.MTU, DHCP4: dhcp}
	for i, addr := range r.Addrs {
		if dhcp && addr.Addr().Is4() {
			continue
		}
		eth.Addresses = append(eth.Addresses, addr.String())
		eth.Routes = append(eth.Routes, nocloud.Route{To: "default", Via: r.Gateways[i].String()})
	}
	for _, addr := range dns {
		if eth.Nameservers == nil {
			eth.Nameservers = &nocloud.Nameservers{}
		}
		eth.Nameservers.Addresses = append(eth.Nameservers.Addresses, addr.String())
	}
	return nocloud.Network{Version: 2, Ethernets: map[string]nocloud.Ethernet{guestInterface: eth}}
}

// seed returns the content of a NoCloud seed disk (cloud-init, data source NoCloud).
func seed(r *record, userData string, dhcp bool, dns []netip.Addr) ([]byte, error) {
	s := nocloud.Seed{InstanceID: r.ID, Hostname: r.ID, UserData: userData, Network: networkOf(r, dhcp, dns)}
	if r.Template == "" {
		return s.Image()
	}
	s.RandomSeed, s.Time = make([]byte, randomSeedSize), time.Now()
	rand.Read(s.RandomSeed)
	image, err := s.Image()
	if len(image) > seedSize {
		return nil, fmt.Errorf("%w: %d bytes of user-data do not fit on a seed disk of %d", provider.ErrInvalidArgument, len(userData), seedSize)
	}
	return append(image, make([]byte, seedSize-len(image))...), err
}

const (
	// seedSize is that of a template's seed disk, and so of those of all VMs that are
	// restored from it: the largest user-data (cloudinit.MaxSize) fits.
	seedSize = 2 << 20
	// randomSeedSize is twice the key of the guest's kernel.
	randomSeedSize = 64
)
