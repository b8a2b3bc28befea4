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
	if d.options.Wrapped != nil {
		if err := sameAccess(d.options.Wrapped.Socket, socket); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	server := d.server()
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(15*time.Second, server.Stop)
		defer late.Stop()
		server.GracefulStop()
	})
	defer stop()
	return server.Serve(listener)
}

// Intercept checks, bounds, observes and logs a request, and gives its error a code.
func (d *Driver) Intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, d.options.CallTimeout)
	defer cancel()
	began := d.options.Now()
	response, err := d.alone(ctx, request, handle)
	report := d.options.Log.Error
	if errors.Is(err, errInVM) {
		report = d.options.Log.Debug
	}
	err = wire(err)
	done := Request{Method: path.Base(info.FullMethod), Code: status.Code(err), Took: d.options.Now().Sub(began)}
	d.options.Observe(done)
	attributes := []any{"method", done.Method, "took", done.Took}
	if v, ok := request.(interface{ GetVolumeId() string }); ok {
		attributes = append(attributes, "volume", v.GetVolumeId())
	}
	if err != nil {
		report("a request failed", append(attributes, "code", done.Code.String(), "error", status.Convert(err).Message())...)
		return nil, err
	}
	d.options.Log.Debug("a request is done", attributes...)
	return response, nil
}

// alone does a request when no other one is under way for the same volume or name.
func (d *Driver) alone(ctx context.Context, request any, handle grpc.UnaryHandler) (any, error) {
	key, err := subject(request)
	if err != nil {
		return nil, err
	}
	if key != "" {
		unlock, err := d.locks.Take(ctx, key)
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	return handle(ctx, request)
}

// subject returns what a request is about, or an error if a field is empty that all requests with
// such a field need. A node is needed also where the specification takes none for all of them: a
// VM would lose the disk of its pod.
func subject(request any) (key string, err error) {
	var fields []string
	if r, ok := request.(interface{ GetName() string }); ok {
		key = "name " + r.GetName()
		fields = append(fields, "name", r.GetName())
	}
	if r, ok := request.(interface{ GetVolumeId() string }); ok {
		key = "id " + r.GetVolumeId()
		fields = append(fields, "volume_id", r.GetVolumeId())
	}
	if r, ok := request.(interface{ GetNodeId() string }); ok {
		fields = append(fields, "node_id", r.GetNodeId())
	}
	if r, ok := request.(interface{ GetTargetPath() string }); ok {
		fields = append(fields, "target_path", r.GetTargetPath())
	}
	if r, ok := request.(interface{ GetVolumePath() string }); ok {
		fields = append(fields, "volume_path", r.GetVolumePath())
	}
	return key, required(fields...)
}
