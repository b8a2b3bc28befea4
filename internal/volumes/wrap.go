// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// wrappable are the drivers whose volumes are disks of a provider, which takes their volumeHandle as
// the id of a disk. Each driver's documentation says what that is; see docs/volumes.
var wrappable = map[string]string{
	"cinder.csi.openstack.org":        "openstack",    // a volume's id
	"disk.csi.azure.com":              "azure",        // a disk's resource id
	"diskplugin.csi.alibabacloud.com": "alibabacloud", // d-…
	"ebs.csi.aws.com":                 "aws",          // vol-…
	"pd.csi.storage.gke.io":           "gcp",          // projects/P/zones/Z/disks/N
	"vpc.block.csi.ibm.io":            "ibmcloud",     // r…-…
}

// Wrapped is the driver of somebody else's that this one stands before: it gets every request as
// it came, but those about volumes of pods in VMs.
type Wrapped struct {
	// Name is the driver's.
	Name string
	// Conn leads to its Socket.
	Conn   *grpc.ClientConn
	Socket string
}

// wrapping is what a [Driver] does with requests when there is a [Wrapped].
type wrapping struct {
	*Wrapped
	*Driver
	// ours are the methods that may be about a volume of a pod in a VM.
	ours map[string]handler
}

// handler returns the answer to a request: a message, or a frame of the wrapped driver's.
type handler func(ctx context.Context, method string, request frame) (any, error)

// Dial returns the driver at an endpoint. It waits until that is there, and returns an error unless
// its volumes are disks of the provider.
func Dial(ctx context.Context, endpoint, providerName string, log *slog.Logger) (w *Wrapped, closeConn func() error, err error) {
	socket, err := SocketPath(endpoint)
	if err != nil {
		return nil, nil, err
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	name, err := nameOf(ctx, conn, endpoint, log)
	if err == nil {
		err = CheckWrappable(name, providerName)
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return &Wrapped{Name: name, Conn: conn, Socket: socket}, conn.Close, nil
}

// sameAccess lets those reach a socket who may reach the wrapped driver's: its sidecars may be of
// another user.
func sameAccess(as, socket string) error {
	var of unix.Stat_t
	err := unix.Stat(as, &of)
	if err == nil {
		err = unix.Chown(socket, int(of.Uid), int(of.Gid))
	}
	if err == nil {
		err = unix.Chmod(socket, of.Mode&0o777)
	}
	if err != nil {
		return fmt.Errorf("give %s the owner and the mode of %s: %w; run as the wrapped driver's user", socket, as, err)
	}
	return nil
}

// nameOf asks a driver for its name until it says it.
func nameOf(ctx context.Context, conn *grpc.ClientConn, endpoint string, log *slog.Logger) (string, error) {
	for waiting := false; ; waiting = true {
		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		info, err := csi.NewIdentityClient(conn).GetPluginInfo(once, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
		cancel()
		if err == nil {
			return info.GetName(), nil
		}
		if !waiting {
			log.Info("waiting for the wrapped driver", "endpoint", endpoint, "error", err)
		}
		if poll.Sleep(ctx, time.Second) != nil {
			return "", fmt.Errorf("the wrapped driver at %s: %w", endpoint, err)
		}
	}
}

// CheckWrappable returns an error unless the volumes of a driver are disks of a provider.
func CheckWrappable(name, providerName string) error {
	want := wrappable[name]
	switch {
	case want == "":
		return fmt.Errorf("%w: driver %q cannot be wrapped: its volumes are not known to be disks of a provider; known are %s", provider.ErrUnimplemented, name, strings.Join(slices.Sorted(maps.Keys(wrappable)), ", "))
	case want != providerName:
		return fmt.Errorf("%w: the volumes of driver %s are disks of provider %s, and the provider is %s", provider.ErrInvalidArgument, name, want, providerName)
	}
	return nil
}

// server returns a gRPC server for the driver, or for the one that it wraps.
func (d *Driver) server() *grpc.Server {
	if d.options.Wrapped == nil {
		s := grpc.NewServer(grpc.UnaryInterceptor(d.Intercept))
		d.Register(s)
		return s
	}
	return grpc.NewServer(grpc.ForceServerCodec(codec{}), grpc.UnknownServiceHandler(d.wrap().serve), grpc.MaxRecvMsgSize(math.MaxInt32))
}

func (w *wrapping) serve(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var request frame
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	handle := w.ours[method]
	if handle == nil {
		handle = w.forward
	}
	response, err := handle(stream.Context(), method, request)
	if err != nil {
		return err
	}
	return stream.SendMsg(response)
}

// forward has the wrapped driver do a request, with the caller's metadata and deadline.
func (w *wrapping) forward(ctx context.Context, method string, request frame) (any, error) {
	response, header, trailer := frame{}, metadata.MD{}, metadata.MD{}
	err := w.Conn.Invoke(outgoing(ctx), method, &request, &response, grpc.ForceCodec(codec{}), grpc.Header(&header), grpc.Trailer(&trailer),
		grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err == nil {
		err = grpc.SetHeader(ctx, header)
	}
	if lost := grpc.SetTrailer(ctx, trailer); err == nil {
		err = lost
	}
	return &response, err // as it is: it has the code and the details
}

// outgoing returns the context of a request to the wrapped driver.
func outgoing(ctx context.Context) context.Context {
	values, _ := metadata.FromIncomingContext(ctx)
	return metadata.NewOutgoingContext(ctx, values)
}

// decide makes the handler of a method that do may answer. What it returns neither an answer nor an
// error for is the wrapped driver's.
func decide[T any, Q interface {
	*T
	protoadapt.MessageV1
}](w *wrapping, do func(context.Context, Q) (any, error)) handler {
	return func(ctx context.Context, method string, raw frame) (any, error) {
		request := Q(new(T))
		if err := proto.Unmarshal(raw, protoadapt.MessageV2Of(request)); err != nil {
			return nil, wire(invalid("%s: %v", method, err))
		}
		return w.Intercept(ctx, request, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
			answer, err := do(ctx, request)
			if answer == nil && err == nil {
				return w.forward(ctx, method, raw)
			}
			return answer, err
		})
	}
}

// frame is a message as it is on the wire.
type frame []byte

// codec leaves frames as they are.
type codec struct{}

func (codec) Marshal(v any) ([]byte, error) {
	if f, ok := v.(*frame); ok {
		return *f, nil
	}
	return proto.Marshal(protoadapt.MessageV2Of(v.(protoadapt.MessageV1)))
}

func (codec) Unmarshal(data []byte, v any) error {
	*v.(*frame) = slices.Clone(data)
	return nil
}

// Name is that of the encoding of all of CSI.
func (codec) Name() string { return "proto" }
