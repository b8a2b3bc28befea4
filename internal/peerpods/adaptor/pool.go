// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/outrigger/outrigger/internal/peerpods/handover"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// PoolVM is a VM that waited in a pool and that nobody else has any more.
type PoolVM struct {
	// Name is that of its PeerPod, as namespace/name; ServerName that in its certificate.
	Name, ServerName string
	Instance         provider.Instance
	// Authority issued its certificate, PEM; Node is how this node proves who it is.
	Authority string
	Node      tls.Certificate
}

// fromPool gives the sandbox a VM that waits in a pool, and reports whether it has one.
// Without one a VM is made, as without pools: a VM that does not take its pod, whatever
// the reason, is given up for deletion and used for nothing else.
//
// The VM is taken before that is on record here. Of a process that ends in between
// nothing is left but the claim in the cluster, from which the controller removes the VM.
func (s *Service) fromPool(ctx context.Context, sb *sandbox, data cloudinit.CloudConfig) bool {
	rec := sb.snapshot()
	if s.opts.Cluster == nil || rec.InitdataDigest != "" { // what is measured when a VM starts cannot come later
		return false
	}
	began := s.opts.Now()
	vm, err := s.opts.Cluster.TakeVM(ctx, rec)
	if err != nil {
		s.logger(sb).Warn("no VM of a pool can be had, one is made", "error", err)
	}
	if vm == nil {
		return false
	}
	s.note(sb, "take-vm", began)
	sb.update(func(rec *Record) { rec.PoolVM = vm.Name })
	began = s.opts.Now()
	if err = s.persist(sb); err == nil {
		err = s.handOver(ctx, vm, data)
	}
	if err != nil {
		s.logger(sb).Warn("a VM of a pool did not take the pod and is given up; one is made", "instance", vm.Instance.ID, "poolvm", vm.Name, "error", err)
		s.giveUp(ctx, sb, err)
		return false
	}
	s.note(sb, "hand-over", began)
	s.noteInstance(sb, &vm.Instance)
	s.logger(sb).Info("took an instance of a pool", "instance", vm.Instance.ID, "poolvm", vm.Name)
	return true
}

// handOver sends the VM what another would have got as user-data.
func (s *Service) handOver(ctx context.Context, vm *PoolVM, data cloudinit.CloudConfig) error {
	if err := checkUsable(&vm.Instance); err != nil {
		return err
	}
	text, err := data.Generate()
	if err != nil {
		return err
	}
	config, err := podtls.ClientConfig(podtls.ClientOptions{ServerName: vm.ServerName, CAPEM: []byte(vm.Authority), MinVersion: tls.VersionTLS13})
	if err != nil {
		return err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &vm.Node, nil }
	address := net.JoinHostPort(vm.Instance.IPs[0].String(), handover.Port)
	if err := s.opts.HandOver(ctx, address, config, []byte(text)); err != nil {
		return fmt.Errorf("hand over to the VM at %s: %w", address, redact.UserData(err, data))
	}
	return nil
}

// giveUp lets the cluster delete the sandbox's VM of a pool. If it cannot be asked now, the
// controller sees that no pod uses the VM.
func (s *Service) giveUp(ctx context.Context, sb *sandbox, why error) {
	if err := s.opts.Cluster.DropVM(ctx, sb.snapshot(), why); err != nil {
		s.logger(sb).Warn("the controller has to find a VM of a pool that is given up", "error", err)
	}
	sb.update(func(rec *Record) { rec.PoolVM = "" })
}
