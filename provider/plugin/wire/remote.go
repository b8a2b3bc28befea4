// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/userdata"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
)

// VerifyTimeout is how long ConfigVerifier may take, which asks the cloud several
// things.
const VerifyTimeout = 2 * time.Minute

// remote is a provider in a plugin.
type remote struct {
	client
	configuration string
	capabilities  []provider.Capability
}

var (
	_ provider.Provider           = (*remote)(nil)
	_ provider.Limited            = (*remote)(nil)
	_ provider.Lister             = (*remote)(nil)
	_ provider.Getter             = (*remote)(nil)
	_ provider.ConsoleReader      = (*remote)(nil)
	_ provider.PowerController    = (*remote)(nil)
	_ provider.InstanceTypeLister = (*remote)(nil)
	_ provider.NodeAddresser      = (*remote)(nil)
	_ provider.ContextVerifier    = (*remote)(nil)
	_ provider.ContextCloser      = (*remote)(nil)

	_ provider.LoadBalancerController = (*remote)(nil)
	_ provider.DiskController         = (*remote)(nil)
	_ provider.DiskSnapshotter        = (*remote)(nil)
)

// NewProvider returns the provider of a configuration that [Configure] made,
// with the capabilities that it returned. It has the methods of all capabilities, and
// provider.As tells which may be used. The connection remains the caller's:
// Teardown does not close it.
func NewProvider(conn grpc.ClientConnInterface, configuration string, capabilities []provider.Capability, options ...Option) provider.Provider {
	return &remote{newClient(conn, options), configuration, slices.Clone(capabilities)}
}

// HasCapability implements provider.Limited. Calls of gRPC always have a context.
func (r *remote) HasCapability(c provider.Capability) bool {
	return c == provider.CapabilityVerifyContext || c == provider.CapabilityCloseContext || slices.Contains(r.capabilities, c)
}

func (r *remote) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	userData, err := userdata.Generate(cloudConfig)
	if err != nil {
		return nil, err
	}
	request := &pluginpb.CreateInstanceRequest{
		Configuration: r.configuration, PodName: podName, SandboxId: sandboxID, UserData: []byte(userData), Spec: specToWire(spec),
	}
	// An error may have a detail, which only the status still has.
	var partial *pluginpb.Instance
	create := func(ctx context.Context, request *pluginpb.CreateInstanceRequest, options ...grpc.CallOption) (*pluginpb.CreateInstanceResponse, error) {
		answer, err := r.rpc.CreateInstance(ctx, request, options...)
		partial = instanceDetail(err)
		return answer, err
	}
	answer, err := call(ctx, r.client, "CreateInstance", create, request)
	if err != nil {
		made, _ := instanceFromWire(partial) // its id is what matters
		return made, err
	}
	return read(r, "CreateInstance", answer.Instance, nil, instanceFromWire)
}

// instanceDetail finds the instance that was made anyway.
func instanceDetail(err error) *pluginpb.Instance {
	for _, detail := range status.Convert(err).Details() {
		if instance, ok := detail.(*pluginpb.Instance); ok {
			return instance
		}
	}
	return nil
}

// read reads a message of a reply, unless the call has failed. It returns what could be read
// also with an error, so that it can be deleted.
func read[M, V any](r *remote, method string, message M, failed error, from func(M) (*V, error)) (*V, error) {
	if failed != nil {
		return nil, failed
	}
	value, err := from(message)
	if value == nil && err == nil {
		err = errors.New("neither an instance nor an error")
	}
	if err != nil {
		err = fmt.Errorf("%w: plugin %s answered %s wrongly: %w", provider.ErrUnknown, r.name, method, err)
	}
	return value, err
}

// readAll reads the messages of a list, unless the call has failed.
func readAll[M, V any](r *remote, method string, messages []M, failed error, from func(M) (*V, error)) ([]V, error) {
	var list []V
	for _, m := range messages {
		value, err := read(r, method, m, nil, from)
		if err != nil {
			return nil, err
		}
		list = append(list, *value)
	}
	return list, failed
}

func (r *remote) DeleteInstance(ctx context.Context, instanceID string) error {
	_, err := call(ctx, r.client, "DeleteInstance", r.rpc.DeleteInstance,
		&pluginpb.DeleteInstanceRequest{Configuration: r.configuration, InstanceId: instanceID})
	return err
}

func (r *remote) Teardown() error { return provider.Teardown(context.Background(), r) }

// TeardownContext releases the configuration in the plugin.
func (r *remote) TeardownContext(ctx context.Context) error {
	_, err := call(ctx, r.client, "Teardown", r.rpc.Teardown, &pluginpb.TeardownRequest{Configuration: r.configuration})
	return err
}

func (r *remote) ConfigVerifier() error { return r.VerifyConfig(context.Background()) }

// VerifyConfig verifies within [VerifyTimeout].
func (r *remote) VerifyConfig(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, VerifyTimeout)
	defer cancel()
	_, err := call(ctx, r.client, "VerifyConfig", r.rpc.VerifyConfig, &pluginpb.VerifyConfigRequest{Configuration: r.configuration})
	return err
}

func (r *remote) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	answer, err := call(ctx, r.client, "ListInstances", r.rpc.ListInstances, &pluginpb.ListInstancesRequest{Configuration: r.configuration, Match: match})
	return readAll(r, "ListInstances", answer.GetInstances(), err, instanceFromWire)
}

func (r *remote) GetInstance(ctx context.Context, instanceID string) (*provider.Instance, error) {
	answer, err := call(ctx, r.client, "GetInstance", r.rpc.GetInstance, &pluginpb.GetInstanceRequest{Configuration: r.configuration, InstanceId: instanceID})
	return read(r, "GetInstance", answer.GetInstance(), err, instanceFromWire)
}

func (r *remote) Console(ctx context.Context, instanceID string, tailBytes int64) ([]byte, error) {
	answer, err := call(ctx, r.client, "Console", r.rpc.Console,
		&pluginpb.ConsoleRequest{Configuration: r.configuration, InstanceId: instanceID, TailBytes: tailBytes})
	return answer.GetOutput(), err
}

func (r *remote) PowerOff(ctx context.Context, instanceID string) error {
	_, err := call(ctx, r.client, "PowerOff", r.rpc.PowerOff, &pluginpb.PowerRequest{Configuration: r.configuration, InstanceId: instanceID})
	return err
}

func (r *remote) PowerOn(ctx context.Context, instanceID string) error {
	_, err := call(ctx, r.client, "PowerOn", r.rpc.PowerOn, &pluginpb.PowerRequest{Configuration: r.configuration, InstanceId: instanceID})
	return err
}

func (r *remote) InstanceTypes(ctx context.Context) ([]provider.InstanceType, error) {
	answer, err := call(ctx, r.client, "InstanceTypes", r.rpc.InstanceTypes, &pluginpb.InstanceTypesRequest{Configuration: r.configuration})
	return each(answer.GetTypes(), typeFromWire), err
}

func (r *remote) NodeAddress(ctx context.Context) (netip.Addr, error) {
	answer, err := call(ctx, r.client, "NodeAddress", r.rpc.NodeAddress, &pluginpb.NodeAddressRequest{Configuration: r.configuration})
	if err != nil {
		return netip.Addr{}, err
	}
	addr, err := netip.ParseAddr(answer.Address)
	if err != nil {
		return addr, fmt.Errorf("%w: plugin %s answered NodeAddress wrongly: %q is not an address", provider.ErrUnknown, r.name, answer.Address)
	}
	return addr, nil
}
