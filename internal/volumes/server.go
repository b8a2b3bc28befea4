// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/provider"
)

// Request is a request that was answered.
type Request struct {
	// Method is such as NodePublishVolume.
	Method string
	Code   codes.Code
	Took   time.Duration
}

// SocketPath returns the path of an endpoint: unix:///PATH, unix:PATH or a path.
func SocketPath(endpoint string) (string, error) {
	text := strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix:"), "//")
	if !path.IsAbs(text) || strings.Contains(text, "://") {
		return "", fmt.Errorf("%w: endpoint %q is not a socket: want unix:///PATH", provider.ErrInvalidArgument, endpoint)
	}
	return text, nil
}

// Serve serves the driver at an endpoint until ctx ends, and then ends what is under way. A socket
// that a killed process left is replaced.
func (d *Driver) Serve(ctx context.Context, endpoint string) error {
	socket, err := SocketPath(endpoint)
	if err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(d.Intercept))
	d.Register(server)
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(15*time.Second, server.Stop)
		defer late.Stop()
		server.GracefulStop()
	})
	defer stop()
	return server.Serve(listener)
}

// Intercept bounds, observes and logs a request, and gives its error a code.
func (d *Driver) Intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, d.options.CallTimeout)
	defer cancel()
	began := d.options.Now()
	response, err := handle(ctx, request)
	err = wire(err)
	done := Request{Method: path.Base(info.FullMethod), Code: status.Code(err), Took: d.options.Now().Sub(began)}
	d.options.Observe(done)
	attributes := []any{"method", done.Method, "took", done.Took}
	if v, ok := request.(interface{ GetVolumeId() string }); ok {
		attributes = append(attributes, "volume", v.GetVolumeId())
	}
	if err != nil {
		d.options.Log.Error("a request failed", append(attributes, "code", done.Code.String(), "error", status.Convert(err).Message())...)
		return nil, err
	}
	d.options.Log.Debug("a request is done", attributes...)
	return response, nil
}
