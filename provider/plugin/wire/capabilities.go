// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"reflect"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
)

// withCapability calls f with the capability of the provider that the request names.
func withCapability[Capability any](ctx context.Context, s *Server, method string, request configured, f func(Capability) error) error {
	return statusOf(ctx, s.with(method, request, func(session *session) error { return useCapability(s, session, f) }))
}

func useCapability[Capability any](s *Server, session *session, f func(Capability) error) error {
	capability, ok := provider.As[Capability](session.provider)
	if !ok {
		return fmt.Errorf("%w: provider %s is not a provider.%s", provider.ErrUnimplemented, s.info.Name, reflect.TypeFor[Capability]().Name())
	}
	return f(capability)
}

// creating is withCapability for calls that make something, for which lists wait.
func creating[Capability any](ctx context.Context, s *Server, method string, request configured, f func(Capability) error) error {
	return statusOf(ctx, s.with(method, request, func(session *session) error {
		return session.create(ctx, method, func() error { return useCapability(s, session, f) })
	}))
}

// listing is withCapability for calls that list what others make.
func listing[Capability any](ctx context.Context, s *Server, method string, request configured, f func(Capability) error) error {
	return statusOf(ctx, s.with(method, request, func(session *session) error {
		session.settle(ctx)
		return useCapability(s, session, f)
	}))
}

func (s *Server) ListInstances(ctx context.Context, request *pluginpb.ListInstancesRequest) (*pluginpb.ListInstancesResponse, error) {
	answer := &pluginpb.ListInstancesResponse{}
	return answer, listing(ctx, s, "ListInstances", request, func(p provider.Lister) error {
		list, err := p.ListInstances(ctx, request.Match)
		for i := range list {
			answer.Instances = append(answer.Instances, instanceToWire(&list[i]))
		}
		return err
	})
}

func (s *Server) GetInstance(ctx context.Context, request *pluginpb.GetInstanceRequest) (*pluginpb.GetInstanceResponse, error) {
	answer := &pluginpb.GetInstanceResponse{}
	return answer, withCapability(ctx, s, "GetInstance", request, func(p provider.Getter) error {
		instance, err := p.GetInstance(ctx, request.InstanceId)
		answer.Instance = instanceToWire(instance)
		return err
	})
}

func (s *Server) Console(ctx context.Context, request *pluginpb.ConsoleRequest) (*pluginpb.ConsoleResponse, error) {
	answer := &pluginpb.ConsoleResponse{}
	return answer, withCapability(ctx, s, "Console", request, func(p provider.ConsoleReader) (err error) {
		answer.Output, err = p.Console(ctx, request.InstanceId, request.TailBytes)
		return err
	})
}

func (s *Server) PowerOff(ctx context.Context, request *pluginpb.PowerRequest) (*pluginpb.PowerResponse, error) {
	return &pluginpb.PowerResponse{}, withCapability(ctx, s, "PowerOff", request, func(p provider.PowerController) error {
		return p.PowerOff(ctx, request.InstanceId)
	})
}

func (s *Server) PowerOn(ctx context.Context, request *pluginpb.PowerRequest) (*pluginpb.PowerResponse, error) {
	return &pluginpb.PowerResponse{}, withCapability(ctx, s, "PowerOn", request, func(p provider.PowerController) error {
		return p.PowerOn(ctx, request.InstanceId)
	})
}

func (s *Server) InstanceTypes(ctx context.Context, request *pluginpb.InstanceTypesRequest) (*pluginpb.InstanceTypesResponse, error) {
	answer := &pluginpb.InstanceTypesResponse{}
	return answer, withCapability(ctx, s, "InstanceTypes", request, func(p provider.InstanceTypeLister) error {
		types, err := p.InstanceTypes(ctx)
		answer.Types = each(types, typeToWire)
		return err
	})
}

func (s *Server) NodeAddress(ctx context.Context, request *pluginpb.NodeAddressRequest) (*pluginpb.NodeAddressResponse, error) {
	answer := &pluginpb.NodeAddressResponse{}
	return answer, withCapability(ctx, s, "NodeAddress", request, func(p provider.NodeAddresser) error {
		addr, err := p.NodeAddress(ctx)
		answer.Address = addr.String()
		return err
	})
}
