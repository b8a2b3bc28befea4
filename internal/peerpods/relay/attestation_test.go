// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	pb "github.com/outrigger/outrigger/internal/protocol/relay"
)

// Attestation returns the nonce as evidence, and a broker's words with control characters.
func (f fakeGuest) Attestation(_ context.Context, req *guest.AttestationRequest) (*guest.AttestationResponse, error) {
	if len(req.Nonce) == 0 {
		return nil, status.Error(codes.FailedPrecondition, "two\nlines")
	}
	evidence, err := json.Marshal(req.Nonce)
	return &guest.AttestationResponse{Tee: "tpm", Evidence: evidence, Broker: "https://broker", Error: "red\x1b[31m"}, err
}

// TestAttestation: evidence passes whole, a guest's words as one line without control characters.
func TestAttestation(t *testing.T) {
	c := newChain(t)
	if _, err := c.server.Attestation(t.Context(), &pb.AttestationRequest{Id: "sandbox"}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown: %v", err)
	}
	if _, err := c.server.Serve(t.Context(), c.request()); err != nil {
		t.Fatal(err)
	}
	nonce := bytes.Repeat([]byte{7}, 32)
	resp, err := c.server.Attestation(t.Context(), &pb.AttestationRequest{Id: "sandbox", Nonce: nonce})
	if want, _ := json.Marshal(nonce); err != nil || !bytes.Equal(resp.GetEvidence(), want) || strings.Contains(resp.GetError(), "\x1b") {
		t.Errorf("%v, %v", resp, err)
	}
	if _, err := c.server.Attestation(t.Context(), &pb.AttestationRequest{Id: "sandbox"}); status.Code(err) != codes.FailedPrecondition || strings.Contains(err.Error(), "\n") {
		t.Errorf("a refusal: %q", err)
	}
}

// TestAttestationArgument: what is wrong with the arguments, and that no relay is there.
func TestAttestationArgument(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "SANDBOX NONCE-IN-HEX"},
		{[]string{"id", "nonce"}, 2, "SANDBOX NONCE-IN-HEX"},
		{[]string{"-socket", t.TempDir() + "/none", "id", "00"}, 1, "no such file"},
	} {
		var out, errs bytes.Buffer
		if code := Main(append([]string{attest.Argument}, c.args...), &out, &errs); code != c.code || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%q: %d, %s", c.args, code, &errs)
		}
	}
}
