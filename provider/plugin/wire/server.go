// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
)

// Options say what a server serves.
type Options struct {
	// Name is the provider's, such as libvirt.
	Name string
	// Version is the plugin's, for humans.
	Version string
	// Cloud makes the providers of the configurations that clients name. One
	// that is not a config.Configurable can have but one configuration.
	Cloud provider.CloudProvider
	// Schema is that of Cloud; [SchemaOf] by default, which makes a manager
	// without package config forget its flags.
	Schema *config.Schema
	// Configured, if any, is the provider of every configuration: clients
	// cannot configure it, and only Close tears it down.
	Configured provider.Provider
	// Log has the stacks of panics; slog.Default by default.
	Log *slog.Logger
}

// Server is a provider behind gRPC. Its other methods are those of [pluginpb.ProviderServer].
type Server struct {
	pluginpb.UnimplementedProviderServer
	info     *pluginpb.GetInfoResponse
	sessions *sessions
}

// NewServer makes a server. [ServerOptions] are for the gRPC server that it is
// registered with.
func NewServer(o Options) *Server {
	if o.Schema == nil {
		schema := SchemaOf(o.Name, o.Cloud)
		o.Schema = &schema
	}
	panics := panics{cmp.Or(o.Log, slog.Default())}
	s := &Server{
		info:     &pluginpb.GetInfoResponse{ContractVersion: ContractVersion, Name: o.Name, Version: o.Version, Configured: o.Configured != nil},
		sessions: &sessions{panics: panics, opener: opener{o.Name, o.Cloud, *o.Schema}, byName: map[string]*session{}, opening: map[string]chan struct{}{}},
	}
	s.info.Schema = each(o.Schema.Fields, fieldToWire)
	if o.Configured != nil {
		s.sessions.fixed = newSession(arguments.Checked(o.Configured), nil, panics)
	}
	return s
}

// ServerOptions let a gRPC server take messages as large as [MaxMessage].
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage)}
}

// Register puts the provider on a gRPC server.
func (s *Server) Register(registrar grpc.ServiceRegistrar) {
	pluginpb.RegisterProviderServer(registrar, s)
}

// Close refuses new calls and tears all providers down once the calls to them
// have ended, within [provider.TeardownTimeout].
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), provider.TeardownTimeout)
	defer cancel()
	return s.sessions.close(ctx)
}

func (s *Server) GetInfo(context.Context, *pluginpb.GetInfoRequest) (*pluginpb.GetInfoResponse, error) {
	return s.info, nil
}

func (s *Server) Configure(ctx context.Context, request *pluginpb.ConfigureRequest) (*pluginpb.ConfigureResponse, error) {
	session, err := s.sessions.configure(ctx, request.Configuration, request.Values)
	if err != nil {
		return nil, toStatus(ctx, err, nil)
	}
	powers := each(provider.Capabilities(session.provider), func(c provider.Capability) string { return string(c) })
	return &pluginpb.ConfigureResponse{Powers: powers}, nil
}

func (s *Server) Teardown(ctx context.Context, request *pluginpb.TeardownRequest) (*pluginpb.TeardownResponse, error) {
	return &pluginpb.TeardownResponse{}, statusOf(ctx, s.sessions.teardown(ctx, request.Configuration))
}

func (s *Server) VerifyConfig(ctx context.Context, request *pluginpb.VerifyConfigRequest) (*pluginpb.VerifyConfigResponse, error) {
	err := s.with("ConfigVerifier", request, func(session *session) error { return provider.VerifyConfig(ctx, session.provider) })
	return &pluginpb.VerifyConfigResponse{}, statusOf(ctx, err)
}

func (s *Server) CreateInstance(ctx context.Context, request *pluginpb.CreateInstanceRequest) (*pluginpb.CreateInstanceResponse, error) {
	var instance *provider.Instance
	err := s.with("CreateInstance", request, func(session *session) error {
		return session.create(ctx, "CreateInstance", func() (err error) {
			userData := cloudinit.Raw(request.UserData)
			instance, err = session.provider.CreateInstance(ctx, request.PodName, request.SandboxId, userData, specFromWire(request.Spec))
			return err
		})
	})
	if err != nil {
		return nil, toStatus(ctx, err, instance)
	}
	return &pluginpb.CreateInstanceResponse{Instance: instanceToWire(instance)}, nil
}

func (s *Server) DeleteInstance(ctx context.Context, request *pluginpb.DeleteInstanceRequest) (*pluginpb.DeleteInstanceResponse, error) {
	err := s.with("DeleteInstance", request, func(session *session) error {
		return session.provider.DeleteInstance(ctx, request.InstanceId)
	})
	return &pluginpb.DeleteInstanceResponse{}, statusOf(ctx, err)
}

// configured are the requests that name a configuration.
type configured interface{ GetConfiguration() string }

// with calls f with the session that the request names.
func (s *Server) with(method string, request configured, f func(*session) error) (err error) {
	session, err := s.sessions.enter(request.GetConfiguration())
	if err != nil {
		return err
	}
	defer session.leave()
	defer session.recovered(method, &err)
	return f(session)
}

// statusOf is toStatus for an error that may be nil.
func statusOf(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return toStatus(ctx, err, nil)
}

// panics keeps those of a provider from ending the process, which other
// sandboxes depend on.
type panics struct{ log *slog.Logger }

// recovered is deferred around calls to the provider: a panic becomes an error.
func (p panics) recovered(method string, err *error) {
	if reason := recover(); reason != nil {
		*err = fmt.Errorf("%w: the provider panicked in %s: %v", provider.ErrUnknown, method, reason)
		p.log.Error("The provider panicked", "method", method, "stack", string(debug.Stack()))
	}
}
