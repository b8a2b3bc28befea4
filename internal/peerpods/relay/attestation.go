// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	pb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/internal/redact"
)

// attestationWait bounds the wait for a guest's evidence.
const attestationWait = 30 * time.Second

// Attestation implements the control service. Evidence has at most the 4 MiB of a message.
func (s *Server) Attestation(ctx context.Context, request *pb.AttestationRequest) (*guest.AttestationResponse, error) {
	s.mu.Lock()
	sb := s.sandboxes[request.Id]
	s.mu.Unlock()
	if sb == nil || !sb.isOpen() {
		return nil, status.Error(codes.NotFound, "the relay serves no such sandbox")
	}
	ctx, cancel := context.WithTimeout(ctx, attestationWait)
	defer cancel()
	conn, err := sb.target.connect(ctx)
	if err != nil {
		return nil, err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	resp, err := guest.NewGuestClient(client).Attestation(ctx, &guest.AttestationRequest{Nonce: request.Nonce})
	if err != nil {
		return nil, status.Error(status.Code(err), redact.Line(status.Convert(err).Message()))
	}
	resp.Tee, resp.Broker, resp.Error = redact.Line(resp.GetTee()), redact.Line(resp.GetBroker()), redact.Line(resp.GetError())
	return resp, nil
}

// printAttestation prints the evidence of a sandbox, which is given with a nonce in hex, and returns the exit code.
func printAttestation(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(Program+" "+attest.Argument, flag.ContinueOnError)
	flags.SetOutput(stderr)
	socket := flags.String("socket", DefaultSocket, "control `socket` of the relay")
	flags.Usage = func() {
		fmt.Fprintf(stderr, "usage: %s %s [-socket SOCKET] SANDBOX NONCE-IN-HEX\nPrints the evidence of a sandbox's VM, as JSON.\n", Program, attest.Argument)
	}
	if err := flags.Parse(args); err != nil {
		return 2
	}
	nonce, err := hex.DecodeString(flags.Arg(1))
	if flags.NArg() != 2 || err != nil {
		flags.Usage()
		return 2
	}
	if err := askAttestation(ctx, *socket, flags.Arg(0), nonce, stdout); err != nil {
		fmt.Fprintln(stderr, Program+":", err)
		return 1
	}
	return 0
}

func askAttestation(ctx context.Context, socket, id string, nonce []byte, stdout io.Writer) error {
	client, err := Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer client.Close()
	resp, err := client.Attestation(ctx, &pb.AttestationRequest{Id: id, Nonce: nonce})
	if err != nil {
		return errors.New(status.Convert(err).Message())
	}
	return json.NewEncoder(stdout).Encode(attest.Answer{TEE: attest.TEE(resp.GetTee()), Evidence: resp.GetEvidence(), Broker: resp.GetBroker(), Accepted: resp.GetAccepted(), Error: resp.GetError()})
}
