// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/provider"
)

// inspectNetwork reads the pod's network namespace; a sandbox without one has
// no pod network, as with a plain `ctr run`.
func (s *Service) inspectNetwork(ctx context.Context, sb *sandbox) error {
	netns := sb.snapshot().Netns
	if netns == "" {
		return nil
	}
	node, err := s.nodeAddress(ctx)
	if err != nil {
		return err
	}
	cfg, err := s.opts.Network.Inspect(ctx, netns, node)
	if err != nil {
		return fmt.Errorf("inspect network namespace %s: %w", netns, err)
	}
	rec := sb.snapshot()
	cfg.VXLANPort = s.opts.VXLANPort
	if cfg.TunnelType, err = s.tunnelType(&rec); err != nil {
		return err
	}
	cfg.ExternalNetViaPodVM = s.opts.ExternalViaPodVM
	sb.update(func(rec *Record) {
		rec.Network = cfg
		rec.Spec.MultiNic = s.opts.ExternalViaPodVM
	})
	return nil
}

// tunnelType returns the type of the pod's tunnel.
func (s *Service) tunnelType(rec *Record) (string, error) {
	if s.opts.TunnelType != TunnelAuto {
		return s.opts.TunnelType, nil
	}
	from, err := brokerOf(cmp.Or(rec.Initdata, s.opts.Initdata))
	if from.broker && !s.opts.TLS.Disabled && !s.opts.TLS.SkipVerify {
		return podnetwork.TunnelTLS, err
	}
	return podnetwork.TunnelVXLAN, err
}

// nodeAddress returns the address at which VMs reach this node. It is invalid if only
// the node's own routes determine it.
func (s *Service) nodeAddress(ctx context.Context) (netip.Addr, error) {
	addresser, ok := provider.As[provider.NodeAddresser](s.opts.Provider)
	if !ok {
		return netip.Addr{}, nil
	}
	addr, err := addresser.NodeAddress(ctx)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("address of this node as VMs reach it: %w", err)
	}
	return addr, nil
}

// reserve takes what the sandbox needs of its own: tunnel id, name, owner
// tags, certificates.
func (s *Service) reserve(_ context.Context, sb *sandbox) error {
	rec := sb.snapshot()
	if rec.Network != nil {
		vni, err := s.opts.VNIs.Acquire()
		if err != nil {
			return fmt.Errorf("reserve a tunnel id: %w", err)
		}
		cfg := *rec.Network
		cfg.VXLANID, cfg.Index = int(vni), int(vni)-s.opts.MinVNI
		rec.Network = &cfg
	}
	tags := maps.Clone(s.owner)
	maps.Copy(tags, map[string]string{
		provider.TagKey:       provider.TagValue(rec.ID),
		provider.TagPod:       provider.TagValue(rec.PodName),
		provider.TagNamespace: provider.TagValue(rec.PodNamespace),
		provider.TagCreated:   rec.Created.UTC().Format(time.RFC3339),
	})
	sb.update(func(r *Record) {
		r.Network = rec.Network
		r.InstanceName = provider.InstanceName(rec.PodName, rec.ID)
		r.Spec.Tags = tags
	})
	return s.ensureIdentity(sb)
}

func (s *Service) unreserve(_ context.Context, sb *sandbox) error {
	if cfg := sb.snapshot().Network; cfg != nil && cfg.VXLANID != 0 {
		s.opts.VNIs.Release(uint32(cfg.VXLANID))
	}
	return nil
}

// recordIntent writes the sandbox to the journal, so that the next process
// knows about it.
func (s *Service) recordIntent(_ context.Context, sb *sandbox) error {
	if err := s.journal.create(sb.id); err != nil {
		return fmt.Errorf("record the sandbox: %w", err)
	}
	if err := sb.advance(StateCreated); err != nil {
		return err
	}
	if err := s.persist(sb); err != nil {
		return fmt.Errorf("record the sandbox: %w", err)
	}
	s.logger(sb).Info("stored " + filepath.Join(s.journal.folder(sb.id), recordFile))
	return nil
}

func (s *Service) forget(_ context.Context, sb *sandbox) error {
	if err := s.journal.remove(sb.id); err != nil {
		return fmt.Errorf("forget the sandbox: %w", err)
	}
	return nil
}

// ownerTags returns the tags of everything that this node makes.
func ownerTags(cluster, node string) map[string]string {
	tags := map[string]string{}
	if cluster != "" {
		tags[provider.TagCluster] = provider.TagValue(cluster)
	}
	if node != "" {
		tags[provider.TagNode] = provider.TagValue(node)
	}
	return tags
}
