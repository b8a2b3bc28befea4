// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/outrigger/outrigger/internal/guest/asked"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"github.com/outrigger/outrigger/internal/wholefile"
)

// Policy says what the node may ask of this agent.
type Policy interface {
	// Allow returns nil if the policy allows a request. Failures reports whether the others may be served, too.
	Allow(ctx context.Context, request proto.Message) error
	Failures() bool
	// State is what it remembers, for the next agent.
	State() []byte
}

// PolicyEngine reads a policy and what it remembered, or nil. It is nil itself in an image without one.
var PolicyEngine func(text string, state []byte) (Policy, error)

// Of policies. The first is in [Config.Provisioned], the others in [Config.StateDir].
const (
	policyFile  = asked.Policy
	policySet   = "policy-set.rego"   // the node's, by SetPolicy
	policyState = "policy-state.json" // what it remembers
)

// governor has the pod's policy once there is one.
type governor struct {
	mu     sync.Mutex
	policy Policy
	// state is what was written last.
	state []byte
}

// govern asks the pod's policy about each request before it is served.
func (a *Agent) govern(ctx context.Context, unmarshal ttrpc.Unmarshaler, info *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
	if PolicyEngine == nil {
		return method(ctx, unmarshal)
	}
	return method(ctx, func(into any) error {
		if err := unmarshal(into); err != nil {
			return err
		}
		request, is := into.(proto.Message)
		if !is {
			return status.Errorf(codes.Internal, "a request of %s that no policy can be asked about", info.FullMethod)
		}
		for _, one := range governed(request) {
			if err := a.allow(ctx, one); err != nil {
				return err
			}
		}
		return nil
	})
}

// governed returns what a policy is asked about for a request: of our own protocol beside Kata's what is the same there. Of what tells
// nothing of the pod it is not asked.
func governed(request proto.Message) (all []proto.Message) {
	switch r := request.(type) {
	case *agent.CheckRequest, *guest.TimelineRequest, *guest.PullProgressRequest, *guest.AttestationRequest:
		return nil
	case *guest.ReadCopiedRequest: // a container's words as well
		return []proto.Message{&agent.ReadStreamRequest{}}
	case *guest.CopyFilesRequest:
		for _, file := range r.GetFiles() {
			all = append(all, file)
		}
		return all
	}
	return []proto.Message{request}
}

func (a *Agent) allow(ctx context.Context, request proto.Message) error {
	a.governor.mu.Lock()
	defer a.governor.mu.Unlock()
	if err := a.loadPolicy(); err != nil {
		return status.Errorf(codes.FailedPrecondition, "%v", err)
	}
	if a.governor.policy == nil {
		return nil
	}
	if err := a.governor.policy.Allow(ctx, request); err != nil {
		passes := a.governor.policy.Failures()
		a.log.Warn("refused by the pod's policy", "err", err, "passes", passes)
		if !passes {
			return status.Error(codes.PermissionDenied, err.Error())
		}
	}
	state := a.governor.policy.State()
	if bytes.Equal(state, a.governor.state) {
		return nil
	}
	// Before the request is served: an agent that is started again remembers what was allowed.
	if err := wholefile.Replace(filepath.Join(a.cfg.StateDir, policyState), state, 0o600); err != nil {
		return status.Errorf(codes.Internal, "keep the state of the pod's policy: %v", err)
	}
	a.governor.state = state
	return nil
}

// loadPolicy reads the policy when there is one: of the initdata, or that the node has set.
func (a *Agent) loadPolicy() error {
	if a.governor.policy != nil {
		return nil
	}
	for _, path := range []string{filepath.Join(a.cfg.StateDir, policySet), filepath.Join(a.cfg.Provisioned, policyFile)} {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the pod's policy: %w", err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		state, err := os.ReadFile(filepath.Join(a.cfg.StateDir, policyState))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the state of the pod's policy: %w", err)
		}
		a.governor.policy, err = PolicyEngine(string(text), state)
		return err
	}
	return nil
}

// SetPolicy takes a policy of the node: where there is none yet, or if the one before allows SetPolicyRequest.
func (a *Agent) SetPolicy(_ context.Context, req *agent.SetPolicyRequest) (*emptypb.Empty, error) {
	if PolicyEngine == nil {
		return nil, status.Error(codes.Unimplemented, "policy enforcement is not available in this agent")
	}
	policy, err := PolicyEngine(req.GetPolicy(), nil)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	a.governor.mu.Lock()
	defer a.governor.mu.Unlock()
	err = wholefile.Replace(filepath.Join(a.cfg.StateDir, policySet), []byte(req.GetPolicy()), 0o600)
	if err = errors.Join(err, os.RemoveAll(filepath.Join(a.cfg.StateDir, policyState))); err != nil {
		return nil, status.Errorf(codes.Internal, "keep the pod's policy: %v", err)
	}
	a.governor.policy, a.governor.state = policy, nil
	return &emptypb.Empty{}, nil
}
