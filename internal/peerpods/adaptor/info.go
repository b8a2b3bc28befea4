// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adaptorpb "github.com/outrigger/outrigger/internal/protocol/adaptor"
	"github.com/outrigger/outrigger/internal/protocol/podvminfo"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider"
)

const (
	defaultConsoleTail = 64 << 10
	maxConsoleTail     = 1 << 20
)

// GetInfo returns the id of the instance that runs a pod. With Wait it waits
// until there is one, also for a pod that is not known yet, or until ctx ends.
func (s *Service) GetInfo(ctx context.Context, req *podvminfo.GetInfoRequest) (*podvminfo.GetInfoResponse, error) {
	for {
		changed := s.changes()
		if id := s.instanceOf(req.GetPodName(), req.GetPodNamespace()); id != "" {
			return &podvminfo.GetInfoResponse{VMID: id}, nil
		}
		if !req.GetWait() {
			return nil, status.Errorf(codes.NotFound, "pod %s/%s has no VM on this node", req.GetPodNamespace(), req.GetPodName())
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-s.calls.Done():
			return nil, status.Error(codes.Unavailable, errShutdown.Error())
		}
	}
}

// instanceOf returns the instance of the newest sandbox of that pod that is
// not being removed.
func (s *Service) instanceOf(name, namespace string) string {
	var newest Record
	for _, sb := range s.all() {
		rec := sb.snapshot()
		if rec.PodName != name || rec.PodNamespace != namespace || rec.State == StateStopping || rec.InstanceID == "" {
			continue
		}
		if newest.ID == "" || rec.Created.After(newest.Created) {
			newest = rec
		}
	}
	return newest.InstanceID
}

// Info describes this adaptor.
func (s *Service) Info(ctx context.Context, _ *adaptorpb.InfoRequest) (*adaptorpb.InfoResponse, error) {
	resp := &adaptorpb.InfoResponse{
		Version:  version.Version,
		Provider: s.opts.ProviderName,
		Pid:      int32(os.Getpid()),
	}
	if addr, err := s.nodeAddress(ctx); err == nil && addr.IsValid() {
		resp.NodeAddress = addr.String()
	}
	return resp, nil
}

// ListSandboxes returns the sandboxes of all pods, by id.
func (s *Service) ListSandboxes(ctx context.Context, _ *adaptorpb.ListSandboxesRequest) (*adaptorpb.ListSandboxesResponse, error) {
	served, err := s.served(ctx)
	if err != nil {
		s.opts.Log.Warn("the agent relay does not respond; client counts are missing", "error", err)
	}
	resp := new(adaptorpb.ListSandboxesResponse)
	for _, sb := range s.all() {
		rec := sb.snapshot()
		if rec.Pooled {
			continue
		}
		resp.Sandboxes = append(resp.Sandboxes, s.describe(&rec, served[rec.ID]))
	}
	return resp, nil
}

func (s *Service) describe(rec *Record, served *relaypb.Served) *adaptorpb.Sandbox {
	sandbox := &adaptorpb.Sandbox{
		Id:              rec.ID,
		PodName:         rec.PodName,
		PodNamespace:    rec.PodNamespace,
		Step:            rec.Step,
		State:           string(rec.State),
		InstanceId:      rec.InstanceID,
		InstanceName:    rec.InstanceName,
		AgentSocket:     s.agentSocket(rec.ID),
		CreatedUnixNano: rec.Created.UnixNano(),
		LastError:       rec.LastError,
		Clients:         served.GetClients(),
	}
	for _, addr := range rec.Addresses {
		sandbox.Addresses = append(sandbox.Addresses, addr.String())
	}
	return sandbox
}

// Console returns the end of a VM's console.
func (s *Service) Console(ctx context.Context, req *adaptorpb.ConsoleRequest) (*adaptorpb.ConsoleResponse, error) {
	reader, ok := provider.As[provider.ConsoleReader](s.opts.Provider)
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "provider %s has no console", s.opts.ProviderName)
	}
	sb := s.find(req.GetId())
	if sb == nil {
		return nil, status.Errorf(codes.NotFound, "there is no sandbox %s", shorten(req.GetId(), 80))
	}
	instance := sb.snapshot().InstanceID
	if instance == "" {
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %s has no VM yet", sb.id)
	}
	tail := req.GetTailBytes()
	if tail <= 0 {
		tail = defaultConsoleTail
	}
	data, err := reader.Console(ctx, instance, min(tail, maxConsoleTail))
	if err != nil {
		return nil, wire(redact.Error(err, nil))
	}
	return &adaptorpb.ConsoleResponse{Data: data}, nil
}
