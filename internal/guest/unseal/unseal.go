// SPDX-License-Identifier: Apache-2.0

// Package unseal is how the VM's other programs have the agent open sealed Secrets: by the call, and the socket's name, of the
// confidential-data-hub of Confidential Containers. The node has no way to that socket: the forwarder connects it with the agent's alone.
package unseal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outrigger/outrigger/internal/peerpods/ttrpcframe"
)

// Of confidential-data-hub/hub/protos/api.proto of guest-components. Both of its messages have one field, bytes with the number 1, as BytesValue has.
const service, method = "api.SealedSecretService", "UnsealSecret"

// ErrImage is of an image that opens no sealed Secrets.
var ErrImage = errors.New("a sealed Secret, which this VM image cannot open: use one that attests (podvm-image build --confidential)")

// Beside returns where podvm-agent listens for this, by its other socket.
func Beside(agentSocket string) string { return filepath.Join(filepath.Dir(agentSocket), "cdh.sock") }

// Serve has sealed Secrets opened for who connects to listener, until ctx is over.
func Serve(ctx context.Context, listener net.Listener, open func(ctx context.Context, sealed []byte) ([]byte, error)) error {
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	server.RegisterService(service, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		method: func(ctx context.Context, decode func(any) error) (any, error) {
			var sealed wrapperspb.BytesValue
			if err := decode(&sealed); err != nil {
				return nil, err
			}
			plain, err := open(ctx, sealed.GetValue())
			return wrapperspb.Bytes(plain), err
		},
	}})
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(ctx, listener); !errors.Is(err, ttrpc.ErrServerClosed) && ctx.Err() == nil {
		return err
	}
	return nil
}

// Ask returns the plain text of a sealed Secret. [ErrImage] is that nothing has ever listened at socket.
func Ask(ctx context.Context, socket string, sealed []byte) ([]byte, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrImage
	}
	if err != nil {
		return nil, fmt.Errorf("ask for a sealed Secret to be opened: %w", err)
	}
	defer conn.Close()
	var plain wrapperspb.BytesValue
	if err := ttrpcframe.Call(ctx, conn, service, method, wrapperspb.Bytes(sealed), &plain); err != nil {
		return nil, errors.New(status.Convert(err).Message())
	}
	return plain.GetValue(), nil
}
