// SPDX-License-Identifier: Apache-2.0

// Package relay carries the agent protocol from the shims of a node to the
// agents in their pod VMs. It lives in a process of its own, agent-relay: a
// shim takes a lost connection for the death of its pod, so what holds the
// connections must outlive an upgrade or a crash of cloud-api-adaptor.
//
// Each connection of a shim has one connection to the VM of its own, so calls
// pass as they are; see package ttrpcframe.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/internal/version"
)

// maxSocketPath is the longest path of a unix socket, in bytes (unix(7)).
const maxSocketPath = 107

// Server implements the control service. Make it with New.
type Server struct {
	log *slog.Logger

	decoding sync.Mutex

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	// idleSince is when the last sandbox went, or the server began.
	idleSince time.Time
	changed   chan struct{}
	closed    bool
}

// New makes a server that serves nothing yet.
func New(log *slog.Logger) *Server {
	return &Server{log: log, sandboxes: map[string]*sandbox{}, idleSince: time.Now(), changed: make(chan struct{}, 1)}
}

// Serve implements the control service; its contract is in relay.proto.
func (s *Server) Serve(ctx context.Context, request *pb.ServeRequest) (*pb.ServeResponse, error) {
	if err := validate(request); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	target, err := newTarget(request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	sb, err := s.reserve(request, target)
	if err != nil {
		return nil, err
	}
	response := &pb.ServeResponse{CarriesFrames: request.FramesPath != ""}
	if sb == nil {
		return response, nil
	}
	if err := sb.open(ctx, time.Duration(request.TimeoutNano)); err != nil {
		s.forget(sb)
		sb.close()
		return nil, err
	}
	return response, nil
}

func validate(r *pb.ServeRequest) error {
	var errs []error
	if r.Id == "" {
		errs = append(errs, errors.New("id is empty"))
	}
	if !filepath.IsAbs(r.SocketPath) || len(r.SocketPath) > maxSocketPath {
		errs = append(errs, fmt.Errorf("socket_path %q: want an absolute path of at most %d bytes", r.SocketPath, maxSocketPath))
	}
	if !strings.Contains(r.Address, ":") {
		errs = append(errs, fmt.Errorf("address %q: want host:port", r.Address))
	}
	if r.FramesPath != "" && (r.Tls == nil || r.Tls.SkipVerify) {
		errs = append(errs, errors.New("frames_path: an encrypted tunnel needs TLS with a certificate that is verified"))
	}
	if r.TimeoutNano < 0 {
		errs = append(errs, fmt.Errorf("timeout_nano %d is negative", r.TimeoutNano))
	}
	return errors.Join(errs...)
}

// reserve returns the sandbox to open; nil if it is served already.
func (s *Server) reserve(request *pb.ServeRequest, target *target) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, status.Error(codes.Unavailable, "the relay is shutting down")
	}
	if old := s.sandboxes[request.Id]; old != nil {
		switch {
		case !same(old.request, request):
			return nil, status.Errorf(codes.AlreadyExists, "sandbox %s is served with other parameters", request.Id)
		case !old.isOpen():
			return nil, status.Errorf(codes.AlreadyExists, "sandbox %s is being dialled by another call", request.Id)
		}
		return nil, nil
	}
	for id, other := range s.sandboxes {
		if other.request.SocketPath == request.SocketPath {
			return nil, status.Errorf(codes.AlreadyExists, "socket_path %s is that of sandbox %s", request.SocketPath, id)
		}
	}
	sb := newSandbox(request, target, &s.decoding, s.log)
	s.sandboxes[request.Id] = sb
	return sb, nil
}

// same compares all but the time-out.
func same(a, b *pb.ServeRequest) bool {
	return a.SocketPath == b.SocketPath && a.Address == b.Address && a.FramesPath == b.FramesPath && proto.Equal(a.Tls, b.Tls)
}

func (s *Server) forget(sb *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sandboxes[sb.request.Id] == sb {
		delete(s.sandboxes, sb.request.Id)
		s.idleSince = time.Now()
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// Stop implements the control service. It also ends a Serve that still dials.
func (s *Server) Stop(_ context.Context, request *pb.StopRequest) (*pb.StopResponse, error) {
	s.mu.Lock()
	sb := s.sandboxes[request.Id]
	s.mu.Unlock()
	if sb != nil {
		s.forget(sb)
		sb.close()
	}
	return &pb.StopResponse{}, nil
}

// List implements the control service.
func (s *Server) List(context.Context, *pb.ListRequest) (*pb.ListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &pb.ListResponse{Pid: int32(os.Getpid()), Version: version.Version}
	for _, sb := range s.sandboxes {
		if sb.isOpen() {
			response.Served = append(response.Served, sb.describe())
		}
	}
	return response, nil
}

// WaitIdle returns when nothing has been served for that long, or ctx ends.
func (s *Server) WaitIdle(ctx context.Context, idle time.Duration) {
	for {
		s.mu.Lock()
		rest := idle - time.Since(s.idleSince)
		busy := len(s.sandboxes) > 0
		if !busy && rest <= 0 {
			s.closed = true
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		var timer <-chan time.Time
		if !busy {
			timer = time.After(rest)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		case <-timer:
		}
	}
}

// Close stops all sandboxes. Their pods end: their shims see it at once.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	all := s.sandboxes
	s.sandboxes = map[string]*sandbox{}
	s.mu.Unlock()
	for _, sb := range all {
		sb.close()
	}
}
