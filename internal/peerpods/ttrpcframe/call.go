// SPDX-License-Identifier: Apache-2.0

package ttrpcframe

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Call makes one call on a connection that has had none, and leaves the connection to the
// caller: a client of the ttrpc library would read from it until it is closed. An error of
// the server has its gRPC status; after any other the connection is of no more use.
func Call(ctx context.Context, conn net.Conn, service, method string, argument, reply proto.Message) error {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	err := call(ctx, conn, service, method, argument, reply)
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

func call(ctx context.Context, conn net.Conn, service, method string, argument, reply proto.Message) error {
	request := ttrpc.Request{Service: service, Method: method}
	if deadline, ok := ctx.Deadline(); ok {
		request.TimeoutNano = int64(time.Until(deadline))
	}
	var err error
	if request.Payload, err = proto.Marshal(argument); err != nil {
		return err
	}
	payload, err := proto.Marshal(&request)
	if err != nil {
		return err
	}
	const stream = 1
	frame, err := NewFrame(stream, TypeRequest, 0, payload)
	if err != nil {
		return err
	}
	if _, err := conn.Write(frame); err != nil {
		return err
	}
	if frame, err = NewReader(conn).Next(); err != nil {
		return err
	}
	if frame.Type() != TypeResponse || frame.Stream() != stream {
		return fmt.Errorf("the reply to the first call is a frame of type %d for stream %d", frame.Type(), frame.Stream())
	}
	var response ttrpc.Response
	if err := proto.Unmarshal(frame.Payload(), &response); err != nil {
		return err
	}
	if err := status.ErrorProto(response.Status); err != nil {
		return err
	}
	return proto.Unmarshal(response.Payload, reply)
}
