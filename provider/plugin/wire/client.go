// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
)

// Option changes how the client half speaks.
type Option func(*client)

// PluginName sets the name of the plugin in errors: its path or its address. Without
// it errors contain the target of the connection.
func PluginName(name string) Option { return func(c *client) { c.name = name } }

// client is a connection to a plugin.
type client struct {
	rpc  pluginpb.ProviderClient
	name string
}

func newClient(conn grpc.ClientConnInterface, options []Option) client {
	c := client{rpc: pluginpb.NewProviderClient(conn), name: "of unknown name"}
	if targeted, ok := conn.(interface{ Target() string }); ok {
		c.name = targeted.Target()
	}
	for _, option := range options {
		option(&c)
	}
	return c
}

// About is what a plugin says of itself.
type About struct {
	// Name is the provider's, such as libvirt.
	Name string
	// Version is the plugin's, for humans.
	Version string
	// Schema is the provider's configuration.
	Schema config.Schema
	// Configured says that whoever started the plugin has configured it:
	// [Configure] is called without values.
	Configured bool
}

// Info asks a plugin what it is. A plugin that speaks another version of the
// contract is provider.ErrInvalidArgument.
func Info(ctx context.Context, conn grpc.ClientConnInterface, options ...Option) (About, error) {
	c := newClient(conn, options)
	answer, err := call(ctx, c, "GetInfo", c.rpc.GetInfo, &pluginpb.GetInfoRequest{})
	if err != nil {
		return About{}, err
	}
	if answer.ContractVersion != ContractVersion {
		return About{}, fmt.Errorf("%w: plugin %s speaks version %d of the provider contract and this program speaks %d: build both from releases that belong together",
			provider.ErrInvalidArgument, c.name, answer.ContractVersion, ContractVersion)
	}
	schema, err := schemaFromWire(answer)
	if err != nil {
		return About{}, fmt.Errorf("%w: plugin %s has a wrong configuration schema: %w", provider.ErrInvalidArgument, c.name, err)
	}
	return About{answer.Name, answer.Version, schema, answer.Configured}, nil
}

// Configure makes the provider of a configuration in the plugin and returns
// its optional capabilities. The same values again change nothing, others replace
// the provider. For a plugin that [About.Configured] says is configured there
// must be no values.
func Configure(ctx context.Context, conn grpc.ClientConnInterface, configuration string, values config.Values, options ...Option) ([]provider.Capability, error) {
	c := newClient(conn, options)
	answer, err := call(ctx, c, "Configure", c.rpc.Configure, &pluginpb.ConfigureRequest{Configuration: configuration, Values: values})
	return each(answer.GetPowers(), func(name string) provider.Capability { return provider.Capability(name) }), err
}

// rpcMethod is a method of pluginpb.ProviderClient.
type rpcMethod[Request, Answer any] func(context.Context, Request, ...grpc.CallOption) (Answer, error)

func call[Request proto.Message, Answer any](ctx context.Context, c client, name string, method rpcMethod[Request, Answer], request Request) (Answer, error) {
	answer, err := method(ctx, request, grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage))
	if err == nil {
		return answer, nil
	}
	var none Answer
	if _, wrong := proto.Marshal(request); wrong != nil {
		return none, fmt.Errorf("%w: %s: the request holds text that is not UTF-8", provider.ErrInvalidArgument, name)
	}
	return none, c.fromStatus(ctx, name, err)
}

// fromStatus returns the error that the call stands for.
func (c client) fromStatus(ctx context.Context, method string, err error) error {
	s := status.Convert(err)
	ended := endOf(ctx, s.Code())
	if info := errorInfo(s); info != nil {
		classes := classesOf(info)
		if ended != nil {
			classes = append(classes, ended)
		}
		return &remoteError{s.Message(), classes}
	}
	switch {
	case ended != nil:
		return fmt.Errorf("plugin %s: %s: %w: %w", c.name, method, provider.ErrUnavailable, ended)
	case s.Code() == codes.Unavailable, s.Code() == codes.Canceled: // cancelled, but not by us: the connection is closed
		return fmt.Errorf("%w: plugin %s is gone or does not answer (%s: %s): see whether it runs and what it logged last",
			provider.ErrUnavailable, c.name, method, s.Message())
	case s.Code() == codes.Unimplemented:
		return fmt.Errorf("%w: plugin %s does not know %s: it is older than this program or no provider: build it again",
			provider.ErrUnimplemented, c.name, method)
	case strings.HasPrefix(s.Message(), "grpc: "): // said by the transport, not by the provider
		return fmt.Errorf("%w: plugin %s: %s: %s", provider.ErrUnknown, c.name, method, s.Message())
	}
	return &remoteError{s.Message(), []error{classOfCode(s.Code())}}
}

// endOf returns why the context of a call has ended, or nil. The server may
// see the deadline a moment before the client.
func endOf(ctx context.Context, code codes.Code) error {
	_, limited := ctx.Deadline()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case code == codes.DeadlineExceeded && limited:
		return context.DeadlineExceeded
	}
	return nil
}
