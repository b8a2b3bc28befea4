// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/handover"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// PoolVM is a VM that waited in a pool and that nobody else has any more.
type PoolVM struct {
	// Name is that of its PeerPod, as namespace/name; ServerName that in its certificate.
	Name, ServerName string
	Instance         provider.Instance
	// Authority issued its certificate, PEM; Node is how this node proves who it is.
	Authority string
	Node      tls.Certificate
	// Stopped says that it is to be started first.
	Stopped bool
}

// wakeLimit bounds the start of a VM that waited stopped. A pod whose VM takes longer has
// another one made.
const wakeLimit = 2 * time.Minute

// Fits reports whether a pool's VM is what a pod asks for, or at most twice of it.
func Fits(have, want *provider.InstanceTypeSpec) bool {
	const largest = 2
	switch {
	case want.MultiNic, len(want.Volumes) > 0, want.GPU != "":
		return false
	case want.Image != have.Image, want.Arch != have.Arch, want.GPUs != have.GPUs:
		return false
	case want.InstanceType != "":
		return want.InstanceType == have.InstanceType
	case want.VCPUs == 0 && want.Memory == 0:
		return have.InstanceType == "" && have.VCPUs == 0 && have.Memory == 0
	}
	enough := func(want, have int64) bool { return want == 0 || have >= want && have <= largest*want }
	return enough(want.VCPUs, have.VCPUs) && enough(want.Memory, have.Memory)
}

// vmPools are the pools that a node's pods take VMs from: the cluster's, or its own.
type vmPools interface {
	TakeVM(ctx context.Context, rec Record) (*PoolVM, error)
	DropVM(ctx context.Context, rec Record, why error) error
}

func (s *Service) pools() vmPools {
	switch {
	case s.pool != nil:
		return s.pool
	case s.opts.Cluster != nil:
		return s.opts.Cluster
	}
	return nil
}

// fromPool gives the sandbox a VM that waits in a pool, and reports whether it has one.
// Without one a VM is made, as without pools: a VM that does not take its pod, whatever
// the reason, is given up for deletion and used for nothing else.
//
// The VM is taken before that is on record here. Of a process that ends in between
// nothing is left but the claim, from which the controller, or the next process, removes the VM.
func (s *Service) fromPool(ctx context.Context, sb *sandbox, data cloudinit.CloudConfig) bool {
	rec := sb.snapshot()
	pool := s.pools()
	if pool == nil || rec.Pooled || rec.InitdataDigest != "" { // what is measured when a VM starts cannot come later
		return false
	}
	began := s.opts.Now()
	vm, err := pool.TakeVM(ctx, rec)
	if err != nil {
		s.logger(sb).Warn("no VM of a pool can be had, one is made", "error", err)
	}
	if vm == nil {
		return false
	}
	s.note(sb, "take-vm", began)
	s.opts.Hook(Point{AfterDo, "take-vm"})
	sb.update(func(rec *Record) { rec.PoolVM = vm.Name })
	began = s.opts.Now()
	if err = s.persist(sb); err == nil {
		s.opts.Hook(Point{Begun, "hand-over"})
		err = checkUsable(&vm.Instance, rec.Spec.Zone)
	}
	if err == nil {
		err = s.wake(ctx, vm)
	}
	if err == nil {
		err = s.handOver(ctx, vm, data)
	}
	if err != nil {
		s.logger(sb).Warn("a VM of a pool did not take the pod and is given up; one is made", "instance", vm.Instance.ID, "poolvm", vm.Name, "error", err)
		s.giveUp(ctx, sb, err)
		return false
	}
	s.note(sb, "hand-over", began)
	s.opts.Hook(Point{AfterDo, "hand-over"})
	s.noteInstance(sb, &vm.Instance)
	s.logger(sb).Info("took an instance of a pool", "instance", vm.Instance.ID, "poolvm", vm.Name)
	return true
}

// wake starts a VM that waited stopped, and returns when it has booted.
func (s *Service) wake(ctx context.Context, vm *PoolVM) error {
	if !vm.Stopped {
		return nil
	}
	power, ok := provider.As[provider.PowerController](s.opts.Provider)
	if !ok {
		return fmt.Errorf("%w: the provider cannot start an instance", provider.ErrUnimplemented)
	}
	ctx, cancel := context.WithTimeout(ctx, wakeLimit)
	defer cancel()
	began := s.opts.Now()
	if err := power.PowerOn(ctx, vm.Instance.ID); err != nil {
		return fmt.Errorf("start instance %s, which waited stopped: %w", vm.Instance.ID, redact.Error(err, nil))
	}
	for {
		err := s.sendTo(ctx, handover.ProbeTimeout, vm, nil)
		if !errors.Is(err, handover.ErrUnreachable) {
			return err
		}
		if poll.Sleep(ctx, handover.ProbePause(s.opts.Now().Sub(began))) != nil {
			return fmt.Errorf("instance %s has not booted in %s: %w", vm.Instance.ID, wakeLimit, err)
		}
	}
}

// handOver sends the VM what another would have got as user-data.
func (s *Service) handOver(ctx context.Context, vm *PoolVM, data cloudinit.CloudConfig) error {
	text, err := data.Generate()
	if err != nil {
		return err
	}
	if err := s.sendTo(ctx, handover.BootLimit, vm, []byte(text)); err != nil {
		return fmt.Errorf("hand over to the VM at %s: %w", vm.Instance.IPs[0], redact.UserData(err, data))
	}
	return nil
}

// sendTo sends a VM that waits a document, see handover.Send, in no more than that time.
func (s *Service) sendTo(ctx context.Context, most time.Duration, vm *PoolVM, document []byte) error {
	config, err := podtls.ClientConfig(podtls.ClientOptions{ServerName: vm.ServerName, CAPEM: []byte(vm.Authority), MinVersion: tls.VersionTLS13})
	if err != nil {
		return err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &vm.Node, nil }
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return s.opts.HandOver(ctx, net.JoinHostPort(vm.Instance.IPs[0].String(), handover.Port), config, document)
}

// giveUp lets the cluster delete the sandbox's VM of a pool. If it cannot be asked now, the
// controller sees that no pod uses the VM.
func (s *Service) giveUp(ctx context.Context, sb *sandbox, why error) {
	if err := s.pools().DropVM(ctx, sb.snapshot(), why); err != nil {
		s.logger(sb).Warn("the controller has to find a VM of a pool that is given up", "error", err)
	}
	sb.update(func(rec *Record) { rec.PoolVM = "" })
}
