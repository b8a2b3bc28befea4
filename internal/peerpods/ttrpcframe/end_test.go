// SPDX-License-Identifier: Apache-2.0

package ttrpcframe

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// listen returns a unix listener.
func listen(t *testing.T) net.Listener {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "fr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	listener, err := net.Listen("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func dial(t *testing.T, listener net.Listener) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// pair returns both ends of a unix connection.
func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	listener := listen(t)
	near = dial(t, listener)
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return near, far
}

// TestServerThatHangs has a client that is killed during a call, and a server
// that never notices.
func TestServerThatHangs(t *testing.T) {
	client, clientFar := pair(t)
	server, _ := pair(t)
	done := make(chan error, 1)
	go func() {
		proxy := &Proxy{Linger: 10 * time.Millisecond}
		done <- proxy.Run(context.Background(), clientFar, server)
	}()
	client.Close()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("error %v", err)
		}
	case <-time.After(8 * time.Second): // below the default
		t.Error("the proxy outlives its client")
	}
}

func TestAnswersStillComeAfterTheClientsEnd(t *testing.T) {
	client, clientFar := pair(t)
	server, agent := pair(t)
	go new(Proxy).Run(context.Background(), clientFar, server)

	question, err := NewFrame(1, TypeRequest, 0, []byte("question"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write(question); err != nil {
		t.Fatal(err)
	}
	client.(*net.UnixConn).CloseWrite()
	asked := NewReader(agent)
	if _, err := asked.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := asked.Next(); err == nil {
		t.Fatal("the server did not see the client's end")
	}
	answer, err := NewFrame(1, TypeResponse, 0, []byte("late"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Write(answer); err != nil {
		t.Fatal(err)
	}
	if got, err := NewReader(client).Next(); err != nil || string(got.Payload()) != "late" {
		t.Errorf("answer %q, %v", got, err)
	}
}

// TestRepliesGoOn while the server reads no requests.
func TestRepliesGoOn(t *testing.T) {
	client, clientFar := pair(t)
	server, agent := pair(t)
	go new(Proxy).Run(context.Background(), clientFar, server)
	frame := func(stream uint32, kind Type, size int) Frame {
		f, err := NewFrame(stream, kind, 0, make([]byte, size))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if _, err := client.Write(frame(1, TypeRequest, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := NewReader(agent).Next(); err != nil {
		t.Fatal(err)
	}
	// What fits into no buffer: the deadline is when it is stuck.
	if err := client.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for stream, err := uint32(3), error(nil); err == nil; stream += 2 {
		_, err = client.Write(frame(stream, TypeRequest, 1<<20))
	}
	if _, err := agent.Write(frame(1, TypeResponse, 1)); err != nil {
		t.Fatal(err)
	}
	if err := client.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := NewReader(client).Next(); err != nil {
		t.Errorf("the reply: %v", err)
	}
}

func TestRefuseTellsWhy(t *testing.T) {
	near, far := pair(t)
	done := make(chan struct{})
	go func() {
		Refuse(far, status.Error(codes.Unavailable, "the VM is gone"), time.Minute)
		close(done)
	}()
	client := ttrpc.NewClient(near)
	for range 2 {
		err := client.Call(t.Context(), "grpc.Health", "Check", new(emptypb.Empty), new(emptypb.Empty))
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the VM is gone") {
			t.Errorf("error %v", err)
		}
	}
	client.Close()
	<-done
}
