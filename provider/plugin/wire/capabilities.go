// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"reflect"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
)

// way is how a session makes a call: by itself, as one that makes something, or as a list.
type way func(s *session, ctx context.Context, method string, call func() error) error

// serve calls f with the capability of the provider that the request names.
func serve[Capability, Answer any](ctx context.Context, s *Server, way way, method string, request configured, f func(Capability) (Answer, error)) (answer Answer, err error) {
	err = s.with(method, request, func(session *session) error {
		return way(session, ctx, method, func() (err error) {
			capability, ok := provider.As[Capability](session.provider)
			if !ok {
				return fmt.Errorf("%w: provider %s is not a provider.%s", provider.ErrUnimplemented, s.info.Name, reflect.TypeFor[Capability]().Name())
			}
			answer, err = f(capability)
			return err
		})
	})
	return answer, statusOf(ctx, err)
}

func (s *Server) ListInstances(ctx context.Context, request *pluginpb.ListInstancesRequest) (*pluginpb.ListInstancesResponse, error) {
	return serve(ctx, s, (*session).list, "ListInstances", request, func(p provider.Lister) (*pluginpb.ListInstancesResponse, error) {
		list, err := p.ListInstances(ctx, request.Match)
		return &pluginpb.ListInstancesResponse{Instances: eachOf(list, instanceToWire)}, err
	})
}

func (s *Server) GetInstance(ctx context.Context, request *pluginpb.GetInstanceRequest) (*pluginpb.GetInstanceResponse, error) {
	return serve(ctx, s, (*session).call, "GetInstance", request, func(p provider.Getter) (*pluginpb.GetInstanceResponse, error) {
		instance, err := p.GetInstance(ctx, request.InstanceId)
		return &pluginpb.GetInstanceResponse{Instance: instanceToWire(instance)}, err
	})
}

func (s *Server) Console(ctx context.Context, request *pluginpb.ConsoleRequest) (*pluginpb.ConsoleResponse, error) {
	return serve(ctx, s, (*session).call, "Console", request, func(p provider.ConsoleReader) (*pluginpb.ConsoleResponse, error) {
		output, err := p.Console(ctx, request.InstanceId, request.TailBytes)
		return &pluginpb.ConsoleResponse{Output: output}, err
	})
}

func (s *Server) PowerOff(ctx context.Context, request *pluginpb.PowerRequest) (*pluginpb.PowerResponse, error) {
	return serve(ctx, s, (*session).call, "PowerOff", request, func(p provider.PowerController) (*pluginpb.PowerResponse, error) {
		return &pluginpb.PowerResponse{}, p.PowerOff(ctx, request.InstanceId)
	})
}

func (s *Server) PowerOn(ctx context.Context, request *pluginpb.PowerRequest) (*pluginpb.PowerResponse, error) {
	return serve(ctx, s, (*session).call, "PowerOn", request, func(p provider.PowerController) (*pluginpb.PowerResponse, error) {
		return &pluginpb.PowerResponse{}, p.PowerOn(ctx, request.InstanceId)
	})
}

func (s *Server) InstanceTypes(ctx context.Context, request *pluginpb.InstanceTypesRequest) (*pluginpb.InstanceTypesResponse, error) {
	return serve(ctx, s, (*session).call, "InstanceTypes", request, func(p provider.InstanceTypeLister) (*pluginpb.InstanceTypesResponse, error) {
		types, err := p.InstanceTypes(ctx)
		return &pluginpb.InstanceTypesResponse{Types: each(types, typeToWire)}, err
	})
}

func (s *Server) NodeAddress(ctx context.Context, request *pluginpb.NodeAddressRequest) (*pluginpb.NodeAddressResponse, error) {
	return serve(ctx, s, (*session).call, "NodeAddress", request, func(p provider.NodeAddresser) (*pluginpb.NodeAddressResponse, error) {
		addr, err := p.NodeAddress(ctx)
		return &pluginpb.NodeAddressResponse{Address: addr.String()}, err
	})
}
