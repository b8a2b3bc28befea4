// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"context"
	"errors"
	"flag"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stand is a server and ways to reach it.
type stand struct {
	server   *wire.Server
	grpc     *grpc.Server
	listener *bufconn.Listener
}

func start(t testing.TB, o wire.Options) *stand {
	t.Helper()
	s := &stand{server: wire.NewServer(o), grpc: grpc.NewServer(wire.ServerOptions()...)}
	s.server.Register(s.grpc)
	t.Cleanup(func() {
		if err := s.server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	s.serve(t)
	return s
}

func (s *stand) serve(t testing.TB) {
	s.listener = bufconn.Listen(1 << 20)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.Serve(s.listener)
	}()
	t.Cleanup(func() {
		s.grpc.Stop()
		<-done
	})
}

func (s *stand) dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:plugin-under-test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// provider configures over a new connection.
func (s *stand) provider(t testing.TB, configuration string, values config.Values) provider.Provider {
	t.Helper()
	conn := s.dial(t)
	capabilities, err := wire.Configure(t.Context(), conn, configuration, values)
	if err != nil {
		t.Fatalf("Configure: %v", err)
	}
	return wire.NewProvider(conn, configuration, capabilities)
}

// stub is a provider whose methods a test replaces.
type stub struct {
	create   func(ctx context.Context, userData string, spec provider.InstanceTypeSpec) (*provider.Instance, error)
	delete   func(ctx context.Context, id string) error
	verify   func() error
	teardown func() error
}

func (s *stub) CreateInstance(ctx context.Context, _, _ string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	userData, err := cloudConfig.Generate()
	if err != nil {
		return nil, err
	}
	return s.create(ctx, userData, spec)
}

func (s *stub) DeleteInstance(ctx context.Context, id string) error {
	if s.delete == nil {
		return nil
	}
	return s.delete(ctx, id)
}

func (s *stub) ConfigVerifier() error {
	if s.verify == nil {
		return nil
	}
	return s.verify()
}

func (s *stub) Teardown() error {
	if s.teardown == nil {
		return nil
	}
	return s.teardown()
}

// stubConfig is the configuration of a cloud of stubs.
type stubConfig struct {
	Zone  string        `flag:"stub-zone" env:"STUB_ZONE" default:"a" choices:"a,b,c" usage:"zone"`
	Token config.Secret `env:"STUB_TOKEN" required:"true" usage:"API token"`
}

func stubCloud(open func(stubConfig) (provider.Provider, error)) *config.Manager[stubConfig] {
	return config.New("stub", open)
}

// events are written down by stubs and waited for by tests.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) add(event string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, event)
}

func (e *events) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string{}, e.list...)
}

// eventually asks again until condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// within returns what comes, or fails.
func within[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(time.Minute):
		t.Fatalf("not within 10 s: %s", what)
		panic("unreachable")
	}
}

// legacy is a manager that knows nothing of package config.
type legacy struct {
	zone    string
	retries int
	public  bool
	wait    time.Duration
	token   string
	open    func(*legacy) (provider.Provider, error)
}

func (l *legacy) ParseCmd(flags *flag.FlagSet) {
	flags.StringVar(&l.zone, "legacy-zone", "a", "zone such as `name`")
	flags.IntVar(&l.retries, "legacy-retries", 3, "how often")
	flags.BoolVar(&l.public, "legacy-public", false, "public address")
	flags.DurationVar(&l.wait, "legacy-wait", time.Minute, "how long")
	flags.StringVar(&l.token, "legacy-token", "from-the-environment", "API token")
}

func (l *legacy) LoadEnv() {}

func (l *legacy) NewProvider() (provider.Provider, error) {
	if l.zone == "none" {
		return nil, errors.New("no such zone")
	}
	return l.open(l)
}
