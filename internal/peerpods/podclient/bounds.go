// SPDX-License-Identifier: Apache-2.0

package podclient

import (
	"context"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/redact"
)

const (
	// mostAnswer bounds one reply of a guest: 32 KiB of output are asked for at a
	// time, and statistics of a container have a few kilobytes.
	mostAnswer = 256 << 10
	// mostWords is what Kubernetes takes of a termination message, in bytes.
	mostWords = 4096
)

// bounded limits the size of what a guest sends, and makes its errors one line
// without control characters.
func bounded(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, _ *ttrpc.UnaryClientInfo, call ttrpc.Invoker) error {
	if err := call(ctx, req, resp); err != nil {
		return err
	}
	if s := resp.Status; s != nil {
		s.Message, s.Details = redact.Line(s.Message), nil
	}
	size := len(resp.Payload)
	if size <= mostAnswer {
		return nil
	}
	resp.Payload = nil
	// With a code it is not mistaken for a lost connection.
	return status.Errorf(codes.ResourceExhausted, "the guest answered %s with %d bytes; the limit is %d", req.Method, size, mostAnswer)
}
