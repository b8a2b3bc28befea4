// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// CreateInstance implements provider.Provider. For a key that has an instance it returns
// that instance, whatever the other arguments are.
func (p *Provider) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	o, err := p.newOrder(podName, sandboxID, cloudConfig, spec)
	if err != nil {
		return nil, fmt.Errorf("create instance: %w", err)
	}
	unlock, err := p.locks.Take(ctx, o.ID)
	if err != nil {
		return nil, failure.Classify(fmt.Errorf("create instance %s: %w", o.ID, err))
	}
	defer unlock()
	made, err := p.findOrMake(ctx, o)
	if err != nil {
		return made, failure.Classify(fmt.Errorf("create instance %s: %w", o.ID, err))
	}
	return made, nil
}

// order describes the instance to make.
type order struct {
	entry
	userData string
}

// Limits of requests if the machines' size is not configured: no machine is larger.
const (
	maxCPUs   = 4096
	maxMemory = 32 << 20 // MiB
)

func (p *Provider) newOrder(podName, key string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*order, error) {
	if err := p.refuse(spec); err != nil {
		return nil, err
	}
	o := &order{entry: entry{ID: instanceID(key), Key: key, Name: provider.InstanceName(podName, key), Tags: maps.Clone(spec.Tags), Created: time.Now().UTC().Truncate(time.Second)}}
	var err error
	if o.userData, err = userdata.Generate(cloudConfig); err != nil {
		return nil, err
	}
	if len(o.userData) > cloudinit.MaxSize {
		return nil, fmt.Errorf("%w: user-data of %d bytes: guests read %d", provider.ErrInvalidArgument, len(o.userData), cloudinit.MaxSize)
	}
	return o, nil
}

// refuse returns an error if the machines of the pool cannot satisfy spec.
func (p *Provider) refuse(spec provider.InstanceTypeSpec) error {
	cpus, memory := cmp.Or(p.cfg.CPUs, maxCPUs), cmp.Or(p.cfg.Memory, maxMemory)
	switch {
	case spec.InstanceType != "":
		return fmt.Errorf("%w: instance type %q: a pool has no types", provider.ErrInvalidArgument, spec.InstanceType)
	case spec.Image != "":
		return fmt.Errorf("%w: image %q: the machines of a pool have theirs", provider.ErrInvalidArgument, spec.Image)
	case spec.GPUs != 0 || spec.GPU != "":
		return fmt.Errorf("%w: %d GPUs of model %q: this provider has none", provider.ErrInvalidArgument, spec.GPUs, spec.GPU)
	case spec.Arch != "" && spec.Arch != p.cfg.Arch:
		return fmt.Errorf("%w: architecture %q: the machines are %s (-byom-arch, BYOM_ARCH)", provider.ErrInvalidArgument, spec.Arch, p.cfg.Arch)
	case spec.MultiNic:
		return fmt.Errorf("%w: a second interface to the outside: this provider gives none", provider.ErrInvalidArgument)
	case spec.Zone != "":
		return fmt.Errorf("%w: zone %q: this provider has no zones", provider.ErrInvalidArgument, spec.Zone)
	case len(spec.Volumes) > 0:
		return fmt.Errorf("%w: volumes: this provider has none", provider.ErrInvalidArgument)
	case spec.VCPUs > cpus || spec.Memory > memory:
		return fmt.Errorf("%w: %d CPUs and %d MiB: a machine has %d (-byom-cpu, BYOM_CPU) and %d (-byom-memory, BYOM_MEMORY)", provider.ErrInvalidArgument, spec.VCPUs, spec.Memory, cpus, memory)
	}
	return nil
}

// findOrMake returns the instance. With an error it also returns one if the caller may
// have to delete it.
func (p *Provider) findOrMake(ctx context.Context, o *order) (*provider.Instance, error) {
	for {
		c, err := p.claim(ctx, o)
		if err != nil {
			return o.unsettled(err), err
		}
		switch c.entry.Phase {
		case phaseReady:
			return c.entry.instance(c.addr), nil
		case phaseReleasing: // a deletion was interrupted
			if err := p.discard(ctx, o.ID); err != nil {
				return c.entry.instance(c.addr), err
			}
			continue
		}
		again, err := p.tryMachine(ctx, o, c)
		if err != nil {
			return c.entry.instance(c.addr), err
		}
		if !again {
			return p.markReady(ctx, o.ID, c.addr, c.entry)
		}
	}
}

// unsettled returns an instance, for the caller to delete it, if it is unknown whether the
// claim was written.
func (o *order) unsettled(err error) *provider.Instance {
	if class := provider.Class(failure.Classify(err)); class == provider.ErrUnavailable || class == provider.ErrUnknown {
		return &provider.Instance{ID: o.ID, Name: o.Name, Key: o.Key}
	}
	return nil
}

// tryMachine connects to the claimed machine and calls build. If a machine that was
// claimed just now does not answer, it is put aside until it does. again means that
// another machine is needed.
func (p *Provider) tryMachine(ctx context.Context, o *order, c *claimed) (again bool, err error) {
	m, err := p.connect(ctx, c.addr)
	if err != nil {
		if !c.fresh || ctx.Err() != nil {
			return false, err
		}
		logger().Warn("a machine of the pool cannot be used; it is put aside until it answers", "machine", c.addr.String(), "error", err)
		if asideErr := p.endRelease(ctx, c.addr, o.ID, "", ""); asideErr != nil {
			return false, errors.Join(err, asideErr)
		}
		if !errors.Is(err, provider.ErrUnavailable) {
			return false, err // our SSH keys are wrong: the next machine would refuse them as well
		}
		return true, nil
	}
	defer m.close()
	return p.build(ctx, m, o, c.entry)
}

// markReady sets the instance's phase to ready.
func (p *Provider) markReady(ctx context.Context, id string, addr netip.Addr, e *entry) (*provider.Instance, error) {
	var now *entry
	err := p.store.change(ctx, func(st state) (bool, error) {
		now = st[addr]
		if now == nil || now.ID != id || now.Phase == phaseReleasing {
			return false, fmt.Errorf("%w: instance %s was deleted while it was made", provider.ErrUnavailable, id)
		}
		if now.Phase == phaseReady {
			return false, nil
		}
		now.Phase, now.Since = phaseReady, time.Now().UTC()
		return true, nil
	})
	if err != nil {
		return e.instance(addr), err
	}
	return now.instance(addr), nil
}

// claimed is the machine of an instance. fresh is set if it was claimed just now.
type claimed struct {
	addr  netip.Addr
	entry *entry
	fresh bool
}

// claim returns the instance's machine: the one that it has, or the first free one. If
// all are in use it waits for those that reboot. The API server decides which of several
// processes gets a machine.
func (p *Provider) claim(ctx context.Context, o *order) (c *claimed, err error) {
	full := fmt.Errorf("%w: all %d machines of -vm-pool-ips (VM_POOL_IPS) are in use, or do not answer, or have not rebooted within -byom-reset-wait (BYOM_RESET_WAIT) %v", provider.ErrCapacity, len(p.pool), p.cfg.ResetWait)
	waiting, cancel := context.WithTimeoutCause(ctx, p.cfg.ResetWait, full)
	defer cancel()
	err = p.pace.Until(waiting, func() (bool, error) {
		var resetting map[netip.Addr]string
		err := p.store.change(ctx, func(st state) (bool, error) {
			c, resetting = p.choose(st, o)
			return c != nil && c.fresh, nil
		})
		if err != nil || c != nil {
			return true, err
		}
		if len(resetting) == 0 {
			return true, full
		}
		return false, p.freeRebooted(ctx, resetting)
	})
	return c, err
}

// choose returns the instance's machine, or claims the first free one. If there is none
// it returns the machines that reboot, with their old boot ids.
func (p *Provider) choose(st state, o *order) (c *claimed, resetting map[netip.Addr]string) {
	if addr, e := st.of(o.ID); e != nil {
		return &claimed{addr, e, false}, nil
	}
	resetting = map[netip.Addr]string{}
	for _, addr := range p.pool {
		switch taken := st[addr]; {
		case taken == nil:
			made := o.entry
			made.Phase, made.Since = phaseMaking, time.Now().UTC()
			st[addr] = &made
			return &claimed{addr, &made, true}, nil
		case taken.Phase == phaseResetting:
			resetting[addr] = taken.Boot
		}
	}
	return nil, resetting
}

// freeRebooted frees the machines that prove that they have rebooted.
func (p *Provider) freeRebooted(ctx context.Context, resetting map[netip.Addr]string) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var proved []netip.Addr
	for addr, boot := range resetting {
		group.Go(func() {
			if p.rebooted(ctx, addr, boot) {
				mu.Lock()
				defer mu.Unlock()
				proved = append(proved, addr)
			}
		})
	}
	group.Wait()
	if len(proved) == 0 {
		return nil
	}
	return p.store.change(ctx, func(st state) (freed bool, err error) {
		for _, addr := range proved {
			// Another process may have freed it, and another instance may have it since.
			if e := st[addr]; e != nil && e.Phase == phaseResetting && e.Boot == resetting[addr] {
				delete(st, addr)
				freed = true
			}
		}
		return freed, nil
	})
}

// rebooted reports whether a machine proves that it has rebooted since it had that boot
// id. It is false if the machine does not answer.
func (p *Provider) rebooted(ctx context.Context, addr netip.Addr, boot string) bool {
	m, err := p.connect(ctx, addr)
	if err != nil {
		logger().Debug("a machine that was told to reboot does not answer", "machine", addr.String(), "error", err)
		return false
	}
	defer m.close()
	clean, err := m.clean(ctx, boot)
	return clean && err == nil
}

// build writes the user-data to a claimed machine. It returns again if the machine cannot
// be used: it was told to reboot, and another one is needed.
func (p *Provider) build(ctx context.Context, m *machine, o *order, e *entry) (again bool, err error) {
	if err := p.noteBoot(ctx, m, o.ID, e); err != nil {
		return false, err
	}
	err = m.put(ctx, userDataFile, o.userData)
	if !errors.Is(err, errThere) {
		return false, err
	}
	has, _, err := m.read(ctx, userDataFile)
	if err != nil || has == o.userData {
		return false, err // an earlier attempt has written it
	}
	// Another process may be making the instance. One that has died leaves a
	// machine that nobody can use.
	made, err := p.awaitMaker(ctx, o.ID)
	if err != nil || made {
		return false, err
	}
	logger().Info("a machine has user-data that is not the instance's; it is reset", "machine", m.addr.String(), "instance", o.ID)
	return true, p.release(ctx, m, o.ID)
}

// noteBoot stores the machine's boot id before the machine is used: it must change before
// another instance gets the machine. It also checks that the machine still belongs to the
// instance. The connection is open meanwhile, and a reboot would end it.
func (p *Provider) noteBoot(ctx context.Context, m *machine, id string, e *entry) error {
	boot, err := m.boot(ctx)
	if err != nil {
		return err
	}
	return p.store.change(ctx, func(st state) (bool, error) {
		now := st[m.addr]
		if now == nil || now.ID != id || now.Phase == phaseReleasing {
			return false, fmt.Errorf("%w: instance %s was deleted while it was made", provider.ErrUnavailable, id)
		}
		if now.Phase == phaseReady || now.Boot == boot {
			return false, nil
		}
		now.Boot, e.Boot = boot, boot
		return true, nil
	})
}

func (p *Provider) awaitMaker(ctx context.Context, id string) (made bool, err error) {
	end := time.Now().Add(p.makerWait)
	err = p.pace.Until(ctx, func() (bool, error) {
		st, err := p.store.read(ctx)
		if err != nil {
			return true, err
		}
		_, e := st.of(id)
		made = e != nil && e.Phase == phaseReady
		return made || e == nil || time.Now().After(end), nil
	})
	return made, err
}
