// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/outrigger/outrigger/internal/guest/forwarder"
	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	pb "github.com/outrigger/outrigger/internal/protocol/relay"
	timelinepb "github.com/outrigger/outrigger/internal/protocol/timeline"
)

const serverName = "podvm-test-01234567"

// fakeAgent returns a few calls and remembers what it got.
type fakeAgent struct {
	agent.AgentServiceService
	mu      sync.Mutex
	created []*agent.CreateContainerRequest
	waits   chan struct{}      // WaitProcess blocks until this is closed
	steps   []*timelinepb.Step // of its timeline; nil for an agent without one
}

func (f *fakeAgent) Check(context.Context, *agent.CheckRequest) (*agent.HealthCheckResponse, error) {
	return &agent.HealthCheckResponse{Status: agent.HealthCheckResponse_SERVING}, nil
}

func (f *fakeAgent) SetGuestDateTime(context.Context, *agent.SetGuestDateTimeRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (f *fakeAgent) Version(context.Context, *agent.CheckRequest) (*agent.VersionCheckResponse, error) {
	return &agent.VersionCheckResponse{AgentVersion: "fake"}, nil
}

func (f *fakeAgent) CreateContainer(_ context.Context, r *agent.CreateContainerRequest) (*emptypb.Empty, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.created = append(f.created, r)
	return &emptypb.Empty{}, nil
}

func (f *fakeAgent) WaitProcess(ctx context.Context, _ *agent.WaitProcessRequest) (*agent.WaitProcessResponse, error) {
	select {
	case <-f.waits:
		return &agent.WaitProcessResponse{Status: 7}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *fakeAgent) ReadStdout(_ context.Context, r *agent.ReadStreamRequest) (*agent.ReadStreamResponse, error) {
	if r.ExecId == "eof" {
		return nil, status.Error(codes.InvalidArgument, "eof")
	}
	return &agent.ReadStreamResponse{Data: bytes.Repeat([]byte{byte(r.Len)}, int(r.Len))}, nil
}

// chain is client - relay - TLS - forwarder - agent, all real but the agent.
type chain struct {
	agent       *fakeAgent
	agentSocket string
	address     string
	bundle      *podtls.Bundle
	server      *Server
	socket      string
	// between are the processes of relay and forwarder, if they have some.
	between []int
}

func newChain(t testing.TB) *chain {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &chain{agent: &fakeAgent{waits: make(chan struct{})}, agentSocket: dir + "/agent.sock", socket: dir + "/agent.ttrpc", server: New(slog.New(slog.DiscardHandler))}
	if c.bundle, err = podtls.NewBundle(serverName, time.Now()); err != nil {
		t.Fatal(err)
	}
	c.startAgent(t)
	c.address = c.startForwarder(t, c.bundle)
	t.Cleanup(c.server.Close)
	return c
}

func (c *chain) startAgent(t testing.TB) {
	t.Helper()
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	agent.RegisterHealthService(server, c.agent)
	agent.RegisterAgentServiceService(server, c.agent)
	guest.RegisterGuestService(server, fakeGuest{agent: c.agent})
	server.RegisterService("unheard.Of", &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"Echo": func(_ context.Context, unmarshal func(any) error) (any, error) {
			message := new(emptypb.Empty)
			err := unmarshal(message)
			return message, err
		},
	}})
	listener, err := net.Listen("unix", c.agentSocket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { server.Serve(context.Background(), listener); close(done) }()
	t.Cleanup(func() { server.Close(); <-done })
}

func (c *chain) startForwarder(t testing.TB, bundle *podtls.Bundle) string {
	t.Helper()
	config, err := podtls.ServerConfig(podtls.ServerOptions{CertPEM: bundle.ServerCertPEM, KeyPEM: bundle.ServerKeyPEM, ClientCAPEM: bundle.CAPEM})
	if err != nil {
		t.Fatal(err)
	}
	return c.startForwarderWith(t, config)
}

func (c *chain) startForwarderWith(t testing.TB, config *tls.Config) string {
	t.Helper()
	ready := make(chan net.Addr, 1)
	f, err := forwarder.New(forwarder.Options{
		Config: &apf.Config{}, Listen: "127.0.0.1:0", AgentSocket: c.agentSocket, PodNamespace: "/run/netns/podns", TLS: config,
		SetupNetwork: func(context.Context, string, string, *podnetwork.Config) error { return nil },
		Ready:        func(a net.Addr) { ready <- a }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	select {
	case a := <-ready:
		return a.String()
	case err := <-done:
		t.Fatal(err)
	}
	return ""
}

func (c *chain) request() *pb.ServeRequest {
	return &pb.ServeRequest{Id: "sandbox", SocketPath: c.socket, Address: c.address, TimeoutNano: int64(time.Minute),
		Tls: &pb.TLS{ServerName: serverName, CaPem: c.bundle.CAPEM, CertPem: c.bundle.ClientCertPEM, KeyPem: c.bundle.ClientKeyPEM}}
}

func (c *chain) client(t testing.TB) *ttrpc.Client {
	t.Helper()
	if _, err := c.server.Serve(context.Background(), c.request()); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	t.Cleanup(func() { client.Close() })
	return client
}

func TestCallsPassThroughTheChain(t *testing.T) {
	c := newChain(t)
	client := c.client(t)
	service := agent.NewAgentServiceClient(client)

	t.Run("Created", func(t *testing.T) {
		request := &agent.CreateContainerRequest{ContainerId: "c", OCI: &agent.Spec{Annotations: map[string]string{gpuAnnotation: "1"}}}
		// A field of an agent API newer than ours, in a message that is rewritten.
		request.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 999, protowire.BytesType), "kept"))
		if _, err := service.CreateContainer(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		got := c.agent.created[0]
		if n := got.OCI.Linux.Namespaces; len(n) != 1 || n[0].Type != "network" || n[0].Path != "/run/netns/podns" {
			t.Errorf("namespaces %v", n)
		}
		if got.OCI.Annotations[cdiAnnotation] != cdiAllGPUs {
			t.Errorf("annotations %v", got.OCI.Annotations)
		}
		if !bytes.Contains(got.ProtoReflect().GetUnknown(), []byte("kept")) {
			t.Error("an unknown field was lost")
		}
	})
	t.Run("LongPollBesideShortCalls", func(t *testing.T) {
		polled := make(chan error, 1)
		go func() {
			res, err := service.WaitProcess(t.Context(), &agent.WaitProcessRequest{})
			if err == nil && res.Status != 7 {
				err = fmt.Errorf("status %d", res.Status)
			}
			polled <- err
		}()
		for range 200 {
			if _, err := service.ReadStdout(t.Context(), &agent.ReadStreamRequest{Len: 32768}); err != nil {
				t.Fatal(err)
			}
		}
		close(c.agent.waits)
		if err := <-polled; err != nil {
			t.Error(err)
		}
	})
	t.Run("ErrorsKeepTheirCode", func(t *testing.T) {
		_, err := service.ReadStdout(t.Context(), &agent.ReadStreamRequest{ExecId: "eof"})
		if st, _ := status.FromError(err); st.Code() != codes.InvalidArgument || st.Message() != "eof" {
			t.Errorf("error %v", err)
		}
	})
	t.Run("UnknownServicePassesAsBytes", func(t *testing.T) {
		request, response := new(emptypb.Empty), new(emptypb.Empty)
		secret := protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), bytes.Repeat([]byte("z"), 3<<20))
		request.ProtoReflect().SetUnknown(secret)
		if err := client.Call(t.Context(), "unheard.Of", "Echo", request, response); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(request, response) {
			t.Error("3 MiB of an unknown message came back changed")
		}
	})
	t.Run("BadRequestIsAnsweredAndTheConnectionLives", func(t *testing.T) {
		_, err := service.CreateContainer(t.Context(), &agent.CreateContainerRequest{ContainerId: "no spec"})
		if err == nil || !strings.Contains(err.Error(), "OCI") {
			t.Errorf("error %v", err)
		}
		if _, err := service.ReadStdout(t.Context(), &agent.ReadStreamRequest{Len: 1}); err != nil {
			t.Error(err)
		}
	})
	t.Run("Counted", func(t *testing.T) {
		list, _ := c.server.List(t.Context(), nil)
		if len(list.Served) != 1 || list.Served[0].Clients != 1 || list.Served[0].Calls < 200 {
			t.Errorf("list %v", list)
		}
	})
}

func TestTwoVMsDoNotTrustEachOther(t *testing.T) {
	other, err := podtls.NewBundle(serverName, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*pb.TLS){
		"wrong CA":         func(r *pb.TLS) { r.CaPem = other.CAPEM },
		"wrong name":       func(r *pb.TLS) { r.ServerName = "podvm-other-89abcdef" },
		"wrong client":     func(r *pb.TLS) { r.CertPem, r.KeyPem = other.ClientCertPEM, other.ClientKeyPEM },
		"no client":        func(r *pb.TLS) { r.CertPem, r.KeyPem = nil, nil },
		"client as server": func(r *pb.TLS) { r.CertPem, r.KeyPem = other.ServerCertPEM, other.ServerKeyPEM },
	} {
		t.Run(name, func(t *testing.T) {
			c := newChain(t)
			request := c.request()
			change(request.Tls)
			_, err := c.server.Serve(t.Context(), request)
			if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("error %v", err)
			}
			if _, err := os.Stat(c.socket); err == nil {
				t.Error("the agent socket is there")
			}
		})
	}
}

func TestNobodyAnswers(t *testing.T) {
	c := newChain(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	request := c.request()
	request.Address, request.TimeoutNano = listener.Addr().String(), int64(50*time.Millisecond)
	listener.Close()
	_, err = c.server.Serve(t.Context(), request)
	if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "console") {
		t.Errorf("error %v", err)
	}
}

func TestServeAgainAndStop(t *testing.T) {
	c := newChain(t)
	client := c.client(t)
	if _, err := c.server.Serve(t.Context(), c.request()); err != nil {
		t.Errorf("the same again: %v", err)
	}
	changed := c.request()
	changed.Address = "127.0.0.1:1"
	if _, err := c.server.Serve(t.Context(), changed); status.Code(err) != codes.AlreadyExists {
		t.Errorf("other parameters: %v", err)
	}
	polled := make(chan error, 1)
	go func() {
		_, err := agent.NewAgentServiceClient(client).WaitProcess(context.Background(), &agent.WaitProcessRequest{})
		polled <- err
	}()
	for range 2 {
		if _, err := c.server.Stop(t.Context(), &pb.StopRequest{Id: "sandbox"}); err != nil {
			t.Error(err)
		}
	}
	if err := <-polled; err == nil {
		t.Error("a call survived Stop")
	}
	if _, err := os.Stat(c.socket); err == nil {
		t.Error("the agent socket is still there")
	}
}

func TestStopEndsADialThatWaits(t *testing.T) {
	c := newChain(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, never speaks TLS
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	request := c.request()
	request.Address = silent.Addr().String()
	failed := make(chan error, 1)
	go func() { _, err := c.server.Serve(context.Background(), request); failed <- err }()
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c.server.Stop(t.Context(), &pb.StopRequest{Id: "sandbox"})
	if err := <-failed; status.Code(err) != codes.Canceled {
		t.Errorf("error %v", err)
	}
}

func TestBrokenFramesEndOneConnectionOnly(t *testing.T) {
	c := newChain(t)
	good := agent.NewAgentServiceClient(c.client(t))
	huge := make([]byte, 10)
	binary.BigEndian.PutUint32(huge, 1<<30)
	huge[8] = 1
	for name, data := range map[string][]byte{"oversized": huge, "truncated": {0, 0, 0, 9, 0, 0, 0, 1, 1, 0, 'x'}, "unknown type": {0, 0, 0, 0, 0, 0, 0, 1, 77, 0}} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("unix", c.socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.Write(data)
			conn.(*net.UnixConn).CloseWrite()
			if rest, err := io.ReadAll(conn); len(rest) > 0 {
				t.Errorf("answered %d bytes, %v", len(rest), err)
			}
			if _, err := good.ReadStdout(t.Context(), &agent.ReadStreamRequest{Len: 1}); err != nil {
				t.Errorf("another connection: %v", err)
			}
		})
	}
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		if err := playRole(role, os.Getenv(dirVar)); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func TestEnsureStartsOne(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "rl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	_, err = Ensure(t.Context(), EnsureOptions{Socket: filepath.Join(dir, "relay.sock"), Binary: "/bin/false", LogFile: filepath.Join(dir, "log")})
	if err == nil || !strings.Contains(err.Error(), "ended at its start") {
		t.Errorf("a relay that cannot start: %v", err)
	}
}
