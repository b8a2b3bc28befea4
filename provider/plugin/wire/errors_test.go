// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

// failing is a remote provider that returns err.
func failing(t *testing.T, err *error) provider.Provider {
	t.Helper()
	p := &stub{delete: func(context.Context, string) error { return *err }}
	return start(t, wire.Options{Name: "stub", Cloud: stubCloud(nil), Configured: p}).provider(t, "", nil)
}

func TestErrorsCross(t *testing.T) {
	var err error
	p := failing(t, &err)
	classes := []error{
		provider.ErrInvalidArgument, provider.ErrNotFound, provider.ErrAlreadyExists, provider.ErrInUse, provider.ErrCapacity, provider.ErrQuota,
		provider.ErrUnauthenticated, provider.ErrPermissionDenied, provider.ErrUnavailable, provider.ErrUnimplemented, provider.ErrUnknown,
	}
	for _, class := range classes {
		for _, err = range []error{
			class,
			fmt.Errorf("delete server i-1: %w: HTTP 418", class),
			fmt.Errorf("%w: ünïcode, 100 %%, \"quotes\"\nand a second line", class),
		} {
			got := p.DeleteInstance(t.Context(), "i-1")
			if provider.Class(got) != class || !errors.Is(got, class) {
				t.Errorf("%v arrives with class %v", err, provider.Class(got))
			}
			if got.Error() != err.Error() {
				t.Errorf("text %q arrives as %q", err, got)
			}
			for _, other := range classes {
				if other != class && errors.Is(got, other) {
					t.Errorf("%v is also %v", got, other)
				}
			}
		}
	}
}

func TestErrorsWithoutOrWithSeveralClasses(t *testing.T) {
	var err error
	p := failing(t, &err)

	err = errors.New("boom")
	if got := p.DeleteInstance(t.Context(), "i-1"); got.Error() != "boom" || !errors.Is(got, provider.ErrUnknown) {
		t.Errorf("no class: %v", got)
	}
	err = errors.Join(fmt.Errorf("image: %w", provider.ErrNotFound), fmt.Errorf("key: %w", provider.ErrPermissionDenied))
	got := p.DeleteInstance(t.Context(), "i-1")
	if !errors.Is(got, provider.ErrNotFound) || !errors.Is(got, provider.ErrPermissionDenied) || got.Error() != err.Error() {
		t.Errorf("joined: %v", got)
	}
	err = fmt.Errorf("%w: \xff", provider.ErrQuota)
	if got := p.DeleteInstance(t.Context(), "i-1"); !errors.Is(got, provider.ErrQuota) || got.Error() != "quota exceeded: \uFFFD" {
		t.Errorf("no UTF-8: %q", got)
	}
	err = fmt.Errorf("%w: %s", provider.ErrQuota, strings.Repeat("é", 1<<20))
	if got := p.DeleteInstance(t.Context(), "i-1"); !errors.Is(got, provider.ErrQuota) || len(got.Error()) > 1<<17 || !strings.HasSuffix(got.Error(), "é (cut)") {
		t.Errorf("a long text arrives with %d bytes", len(got.Error()))
	}
	// The provider's own time-out is not the caller's.
	err = fmt.Errorf("%w: %w", provider.ErrUnavailable, context.DeadlineExceeded)
	if got := p.DeleteInstance(t.Context(), "i-1"); !errors.Is(got, provider.ErrUnavailable) || errors.Is(got, context.DeadlineExceeded) {
		t.Errorf("time-out of the provider: %v", got)
	}
}

func TestContextErrorsCross(t *testing.T) {
	started := make(chan struct{}, 1)
	p := start(t, wire.Options{Name: "stub", Cloud: stubCloud(nil), Configured: &stub{delete: func(ctx context.Context, _ string) error {
		select {
		case started <- struct{}{}:
		default: // a late call, when nobody counts them any more
		}
		<-ctx.Done()
		return fmt.Errorf("delete: %w: %w", provider.ErrUnavailable, ctx.Err())
	}}}).provider(t, "", nil)

	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- p.DeleteInstance(ctx, "i-1") }()
	within(t, "the call arrives", started)
	cancel()
	if err := within(t, "cancelled call", result); !errors.Is(err, context.Canceled) || !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("cancelled: %v", err)
	}
	// Client and server have the same deadline: whoever is first, it is one.
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		err := p.DeleteInstance(ctx, "i-1")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, provider.ErrUnavailable) {
			t.Errorf("deadline: %v", err)
		}
		cancel()
		select {
		case <-started:
		default:
		}
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := p.DeleteInstance(ctx, "i-1"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
}

func TestGonePlugin(t *testing.T) {
	s := start(t, wire.Options{Name: "stub", Cloud: stubCloud(nil), Configured: &stub{}})
	conn := s.dial(t)
	s.grpc.Stop()
	err := wire.NewProvider(conn, "", nil, wire.PluginName("/plugins/stub")).DeleteInstance(t.Context(), "i-1")
	if !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "plugin /plugins/stub is gone") {
		t.Errorf("server gone: %v", err)
	}
	if err := wire.NewProvider(conn, "", nil).DeleteInstance(t.Context(), "i-1"); !strings.Contains(err.Error(), "passthrough:plugin-under-test") {
		t.Errorf("without a name: %v", err)
	}
	conn.Close()
	err = wire.NewProvider(conn, "", nil, wire.PluginName("stub")).DeleteInstance(t.Context(), "i-1")
	if !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "plugin stub is gone") {
		t.Errorf("connection closed: %v", err)
	}
}

// foreign is a plugin that was not made with this package.
type foreign struct {
	pluginpb.UnimplementedProviderServer
	err  error
	info *pluginpb.GetInfoResponse
}

func (f *foreign) DeleteInstance(context.Context, *pluginpb.DeleteInstanceRequest) (*pluginpb.DeleteInstanceResponse, error) {
	return nil, f.err
}

func (f *foreign) CreateInstance(context.Context, *pluginpb.CreateInstanceRequest) (*pluginpb.CreateInstanceResponse, error) {
	return &pluginpb.CreateInstanceResponse{}, nil
}

func (f *foreign) GetInfo(context.Context, *pluginpb.GetInfoRequest) (*pluginpb.GetInfoResponse, error) {
	return f.info, f.err
}

func startForeign(t *testing.T, f pluginpb.ProviderServer) *grpc.ClientConn {
	t.Helper()
	s := &stand{grpc: grpc.NewServer()}
	pluginpb.RegisterProviderServer(s.grpc, f)
	s.serve(t)
	return s.dial(t)
}

func TestPlainStatuses(t *testing.T) {
	f := &foreign{}
	p := wire.NewProvider(startForeign(t, f), "", nil, wire.PluginName("foreign"))
	for code, want := range map[codes.Code]error{
		codes.InvalidArgument: provider.ErrInvalidArgument, codes.OutOfRange: provider.ErrInvalidArgument,
		codes.NotFound: provider.ErrNotFound, codes.AlreadyExists: provider.ErrAlreadyExists,
		codes.ResourceExhausted: provider.ErrQuota, codes.Unauthenticated: provider.ErrUnauthenticated,
		codes.PermissionDenied: provider.ErrPermissionDenied, codes.Unavailable: provider.ErrUnavailable,
		codes.DeadlineExceeded: provider.ErrUnavailable, codes.Aborted: provider.ErrUnavailable, codes.Canceled: provider.ErrUnavailable,
		codes.Unimplemented: provider.ErrUnimplemented, codes.Internal: provider.ErrUnknown, codes.Unknown: provider.ErrUnknown,
		codes.FailedPrecondition: provider.ErrUnknown, codes.DataLoss: provider.ErrUnknown,
	} {
		f.err = status.Error(code, "what it says")
		err := p.DeleteInstance(t.Context(), "i-1")
		if provider.Class(err) != want || !errors.Is(err, want) || errors.Is(err, wire.ErrNotConfigured) {
			t.Errorf("%s: %v", code, err)
		}
	}
	f.err = status.Error(codes.ResourceExhausted, "grpc: received message larger than max")
	if err := p.DeleteInstance(t.Context(), "i-1"); provider.Class(err) != provider.ErrUnknown {
		t.Errorf("transport: %v", err)
	}
}

func TestOlderAndOtherPlugins(t *testing.T) {
	f := &foreign{}
	conn := startForeign(t, f)
	_, err := wire.NewProvider(conn, "", []provider.Capability{provider.CapabilityGet}, wire.PluginName("old")).(provider.Getter).GetInstance(t.Context(), "i-1")
	if !errors.Is(err, provider.ErrUnimplemented) || !strings.Contains(err.Error(), "plugin old does not know GetInstance") {
		t.Errorf("older plugin: %v", err)
	}
	if _, err := wire.NewProvider(conn, "", nil).CreateInstance(t.Context(), "p", "k", cloudinit.Raw(""), provider.InstanceTypeSpec{}); !errors.Is(err, provider.ErrUnknown) {
		t.Errorf("neither instance nor error: %v", err)
	}
	f.info = &pluginpb.GetInfoResponse{ContractVersion: 7, Name: "x"}
	if _, err := wire.Info(t.Context(), conn, wire.PluginName("new")); !errors.Is(err, provider.ErrInvalidArgument) ||
		!strings.Contains(err.Error(), "plugin new speaks version 7 of the provider contract and this program speaks 1") {
		t.Errorf("other contract: %v", err)
	}
	f.info = &pluginpb.GetInfoResponse{ContractVersion: 1, Name: "x", Schema: []*pluginpb.Field{{Name: "a", Flag: "--a"}}}
	if _, err := wire.Info(t.Context(), conn, wire.PluginName("odd")); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "plugin odd") {
		t.Errorf("odd schema: %v", err)
	}
}
