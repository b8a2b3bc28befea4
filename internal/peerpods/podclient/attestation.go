// SPDX-License-Identifier: Apache-2.0

package podclient

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/protocol/guest"
)

// attestationTimeout is for a TPM in emulation, which makes its key first.
const attestationTimeout = time.Minute

// Attestation asks the VM for evidence that is bound to a nonce.
func (p *Pod) Attestation(ctx context.Context, nonce []byte) (*attest.Answer, error) {
	resp, err := ask(ctx, p, "", attestationTimeout, p.guest.Attestation, &guest.AttestationRequest{Nonce: nonce})
	if status.Code(err) == codes.Unimplemented {
		return nil, errors.New("the VM's image does not attest: build one with podvm-image build --confidential")
	}
	if err != nil {
		return nil, err
	}
	return &attest.Answer{TEE: attest.TEE(resp.GetTee()), Evidence: resp.GetEvidence(), Broker: resp.GetBroker(), Accepted: resp.GetAccepted(), Error: resp.GetError()}, nil
}
