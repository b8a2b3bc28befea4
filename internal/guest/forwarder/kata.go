// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/guest/kataguest"
	"github.com/outrigger/outrigger/internal/guest/unseal"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// guestService is that of podvm-agent alone.
const guestService = "outrigger.guest.v1.Guest"

// errNoGuestService is the answer in place of kata-agent's: it answers InvalidArgument to services that it does not
// have, which the node cannot distinguish from its own mistakes.
var errNoGuestService = status.Error(codes.Unimplemented, "the agent of this VM is Kata's, which has no service "+guestService)

// policyFeature is what kata-agent has among its extra features if it was built with policies.
const policyFeature = "agent-policy"

// checkAsked returns an error if the pod relies on something that a VM with Kata's agent does not have.
func (f *Forwarder) checkAsked(ctx context.Context) error {
	if f.Kata == nil {
		return nil // podvm-agent refuses such pods itself
	}
	return f.Kata.CheckAsked(func() bool { return f.agentHasPolicies(ctx) })
}

// opensSealed reports whether sealed Secrets are the agent's affair. Without the component that opens them kata-agent would
// give a pod the seal.
func (f *Forwarder) opensSealed() bool { return f.Kata == nil || f.Kata.Has(kataguest.DataHub) }

var errSealed = status.Error(codes.FailedPrecondition,
	"a sealed Secret, which this VM image cannot open: it has no "+kataguest.DataHub+". Use one that has, or one of podvm-image build --confidential")

// unseal has the agent, or Kata's data hub, open a sealed Secret.
func (f *Forwarder) unseal(ctx context.Context, sealed []byte) ([]byte, error) {
	if !f.opensSealed() {
		return nil, errSealed
	}
	socket := unseal.Beside(f.AgentSocket)
	if f.Kata != nil {
		socket = kataguest.HubSocket
	}
	ctx, cancel := context.WithTimeout(ctx, unsealTime)
	defer cancel()
	return unseal.Ask(ctx, socket, sealed)
}

func (f *Forwarder) checkSealedEnv(env []string) error {
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if !f.opensSealed() && attest.IsSealed([]byte(value)) {
			return fmt.Errorf("variable %s: %w", name, errSealed)
		}
	}
	return nil
}

func (f *Forwarder) checkSealedFile(payload []byte) error {
	var request agent.CopyFileRequest
	if err := proto.Unmarshal(payload, &request); err != nil {
		return fmt.Errorf("CopyFile: %w", err)
	}
	if request.Offset == 0 && attest.IsSealed(request.Data) {
		return fmt.Errorf("copy to %s: %w", request.Path, errSealed)
	}
	return nil
}

func (f *Forwarder) agentHasPolicies(ctx context.Context) bool {
	conn, err := f.dialAgent(ctx)
	if err != nil {
		return false
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	details, err := agent.NewAgentServiceClient(client).GetGuestDetails(ctx, &agent.GuestDetailsRequest{})
	// A policy may refuse that as well.
	return status.Code(err) == codes.PermissionDenied || slices.Contains(details.GetAgentDetails().GetExtraFeatures(), policyFeature)
}
