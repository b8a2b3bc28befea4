// SPDX-License-Identifier: Apache-2.0

package ttrpcframe

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestClientAfterCall has a client of the library on a connection on which a call was
// made: its server takes no id of a stream twice.
func TestClientAfterCall(t *testing.T) {
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	server.RegisterService("s", &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"Double": func(_ context.Context, decode func(any) error) (any, error) {
			var n wrapperspb.Int64Value
			if err := decode(&n); err != nil {
				return nil, err
			}
			if n.Value < 0 {
				return nil, status.Error(codes.OutOfRange, "below 0")
			}
			return wrapperspb.Int64(2 * n.Value), nil
		},
	}})
	listener := listen(t)
	go server.Serve(context.Background(), listener)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	refused := dial(t, listener)
	if err := Call(ctx, refused, "s", "Double", wrapperspb.Int64(-1), &wrapperspb.Int64Value{}); status.Code(err) != codes.OutOfRange {
		t.Errorf("error %v", err)
	}
	conn, reply := dial(t, listener), &wrapperspb.Int64Value{}
	if err := Call(ctx, conn, "s", "Double", wrapperspb.Int64(21), reply); err != nil || reply.Value != 42 {
		t.Fatalf("%v, %v", reply, err)
	}
	near, far := pair(t)
	proxy := &Proxy{Used: 1}
	go proxy.Run(ctx, far, conn)
	client := ttrpc.NewClient(near)
	defer client.Close()
	for n := range int64(3) {
		if err := client.Call(ctx, "s", "Double", wrapperspb.Int64(n), reply); err != nil || reply.Value != 2*n {
			t.Errorf("%d: %v, %v", n, reply, err)
		}
	}
	if err := client.Call(ctx, "s", "Double", wrapperspb.Int64(-1), reply); status.Code(err) != codes.OutOfRange {
		t.Errorf("error %v", err)
	}
}

// TestCallEndsWithItsContext has a server that says nothing.
func TestCallEndsWithItsContext(t *testing.T) {
	near, _ := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := Call(ctx, near, "s", "m", wrapperspb.Int64(1), &wrapperspb.Int64Value{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestReplyThatIsNone has a server that sends something else than a reply to the call.
func TestReplyThatIsNone(t *testing.T) {
	for name, frame := range map[string]struct {
		kind    Type
		stream  uint32
		payload string
	}{
		"another stream": {TypeResponse, 3, ""},
		"a request":      {TypeRequest, 1, ""},
		"no message":     {TypeResponse, 1, "\xff"},
	} {
		near, far := pair(t)
		sent, err := NewFrame(frame.stream, frame.kind, 0, []byte(frame.payload))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := far.Write(sent); err != nil {
			t.Fatal(err)
		}
		if err := Call(t.Context(), near, "s", "m", wrapperspb.Int64(1), &wrapperspb.Int64Value{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestHeldRequestHoldsUpNoOther: while a request is changed, which may take minutes, others are served; later it is served as well.
func TestHeldRequestHoldsUpNoOther(t *testing.T) {
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	var late atomic.Bool
	echo := func(_ context.Context, decode func(any) error) (any, error) {
		var n wrapperspb.Int64Value
		err := decode(&n)
		late.CompareAndSwap(false, n.Value < 0)
		return &n, err
	}
	server.RegisterService("s", &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{"Slow": echo, "Fast": echo}})
	listener := listen(t)
	go server.Serve(context.Background(), listener)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	release, overdue := make(chan struct{}), make(chan struct{})
	near, far := pair(t)
	proxy := &Proxy{
		Wants: func(_, method []byte) bool { return string(method) == "Slow" },
		Intercept: func(ctx context.Context, _, _ string, argument []byte) ([]byte, error) {
			select {
			case <-release:
			case <-ctx.Done(): // of the one that is late: the others have a minute
				close(overdue)
			}
			return argument, nil
		},
	}
	go proxy.Run(ctx, far, dial(t, listener))
	client := ttrpc.NewClient(near)
	defer client.Close()
	ask := func(method string, n int64) error {
		reply := &wrapperspb.Int64Value{}
		err := client.Call(ctx, "s", method, wrapperspb.Int64(n), reply)
		if err == nil && reply.Value != n {
			err = fmt.Errorf("%s(%d) = %d", method, n, reply.Value)
		}
		return err
	}
	slow := make(chan error, 2*atOnce)
	for n := range int64(atOnce) - 1 {
		go func() { slow <- ask("Slow", n) }()
	}
	for n := range int64(100) {
		if err := ask("Fast", 1000+n); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-slow:
		t.Errorf("a held request was answered: %v", err)
	default:
	}
	soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := client.Call(soon, "s", "Slow", wrapperspb.Int64(-1), &wrapperspb.Int64Value{}); err == nil {
		t.Error("a request that was held for longer than its deadline succeeded")
	}
	<-overdue
	close(release)
	for range atOnce - 1 {
		if err := <-slow; err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(ask("Fast", 1), ask("Slow", 2)); err != nil { // after the late one was let go
		t.Error(err)
	}
	if late.Load() {
		t.Error("the server had the request that came too late")
	}
}
