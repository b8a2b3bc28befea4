// SPDX-License-Identifier: Apache-2.0

// Package intercept puts a function around all calls of a provider, like an
// interceptor of gRPC: to measure them, to check their arguments.
package intercept

import (
	"context"
	"net/netip"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// Call is one call of a method that has a context.
type Call struct {
	// Method is the method's name, such as CreateInstance.
	Method string
	// Key is the idempotency key of CreateInstance, CreateDisk, CreateSnapshot and of
	// methods of load balancers.
	Key string
	// InstanceID is the id of the instance that the call is about, and Match the
	// tags that a list asks for.
	InstanceID string
	Match      map[string]string
	// DiskID and SnapshotID are the ids of the disk and the snapshot.
	DiskID, SnapshotID string
	// Spec is that of CreateInstance and Disk that of CreateDisk; nil in other calls.
	Spec *provider.InstanceTypeSpec
	Disk *provider.DiskSpec
	// Bytes is the size that ResizeDisk is asked for.
	Bytes int64
	// TailBytes is how much of a console is read.
	TailBytes int64
}

// Func is called in place of each method. It may call next once, whose error is
// the method's; the caller gets the error that Func returns.
type Func func(ctx context.Context, call Call, next func() error) error

// Provider returns p with around around its calls. It has the capabilities that p
// has; ask for them with [provider.As].
func Provider(p provider.Provider, around Func) provider.Provider {
	return &intercepted{p, around}
}

type intercepted struct {
	provider.Provider
	around Func
}

var (
	_ provider.Limited                = (*intercepted)(nil)
	_ provider.Lister                 = (*intercepted)(nil)
	_ provider.Getter                 = (*intercepted)(nil)
	_ provider.ConsoleReader          = (*intercepted)(nil)
	_ provider.PowerController        = (*intercepted)(nil)
	_ provider.InstanceTypeLister     = (*intercepted)(nil)
	_ provider.NodeAddresser          = (*intercepted)(nil)
	_ provider.LoadBalancerController = (*intercepted)(nil)
	_ provider.ImageImporter          = (*intercepted)(nil)
	_ provider.ContextVerifier        = (*intercepted)(nil)
	_ provider.ContextCloser          = (*intercepted)(nil)
)

func (p *intercepted) HasCapability(c provider.Capability) bool {
	return provider.Has(p.Provider, c)
}

// around calls a method through f. What the method returned is returned with f's
// error too.
func around[R any](ctx context.Context, f Func, call Call, method func() (R, error)) (result R, err error) {
	err = f(ctx, call, func() error {
		var err error
		result, err = method()
		return err
	})
	return result, err
}

// through calls a method of the capability C.
func through[C, R any](ctx context.Context, p *intercepted, call Call, method func(C) (R, error)) (R, error) {
	return around(ctx, p.around, call, func() (result R, err error) {
		capability, ok := provider.As[C](p.Provider)
		if !ok {
			return result, provider.ErrUnimplemented
		}
		return method(capability)
	})
}

// only is through for methods that return an error alone.
func only[C any](ctx context.Context, p *intercepted, call Call, method func(C) error) error {
	_, err := through(ctx, p, call, func(c C) (struct{}, error) { return struct{}{}, method(c) })
	return err
}

func (p *intercepted) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	return around(ctx, p.around, Call{Method: "CreateInstance", Key: sandboxID, Spec: &spec}, func() (*provider.Instance, error) {
		return p.Provider.CreateInstance(ctx, podName, sandboxID, cloudConfig, spec)
	})
}

func (p *intercepted) DeleteInstance(ctx context.Context, instanceID string) error {
	return p.around(ctx, Call{Method: "DeleteInstance", InstanceID: instanceID}, func() error {
		return p.Provider.DeleteInstance(ctx, instanceID)
	})
}

func (p *intercepted) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	return through(ctx, p, Call{Method: "ListInstances", Match: match}, func(inner provider.Lister) ([]provider.Instance, error) {
		return inner.ListInstances(ctx, match)
	})
}

func (p *intercepted) GetInstance(ctx context.Context, instanceID string) (*provider.Instance, error) {
	return through(ctx, p, Call{Method: "GetInstance", InstanceID: instanceID}, func(inner provider.Getter) (*provider.Instance, error) {
		return inner.GetInstance(ctx, instanceID)
	})
}

func (p *intercepted) Console(ctx context.Context, instanceID string, tailBytes int64) ([]byte, error) {
	return through(ctx, p, Call{Method: "Console", InstanceID: instanceID, TailBytes: tailBytes}, func(inner provider.ConsoleReader) ([]byte, error) {
		return inner.Console(ctx, instanceID, tailBytes)
	})
}

func (p *intercepted) PowerOff(ctx context.Context, instanceID string) error {
	return only(ctx, p, Call{Method: "PowerOff", InstanceID: instanceID}, func(inner provider.PowerController) error {
		return inner.PowerOff(ctx, instanceID)
	})
}

func (p *intercepted) PowerOn(ctx context.Context, instanceID string) error {
	return only(ctx, p, Call{Method: "PowerOn", InstanceID: instanceID}, func(inner provider.PowerController) error {
		return inner.PowerOn(ctx, instanceID)
	})
}

func (p *intercepted) InstanceTypes(ctx context.Context) ([]provider.InstanceType, error) {
	return through(ctx, p, Call{Method: "InstanceTypes"}, func(inner provider.InstanceTypeLister) ([]provider.InstanceType, error) {
		return inner.InstanceTypes(ctx)
	})
}

func (p *intercepted) NodeAddress(ctx context.Context) (netip.Addr, error) {
	return through(ctx, p, Call{Method: "NodeAddress"}, func(inner provider.NodeAddresser) (netip.Addr, error) {
		return inner.NodeAddress(ctx)
	})
}

func (p *intercepted) EnsureLoadBalancer(ctx context.Context, spec provider.LoadBalancerSpec) (*provider.LoadBalancer, error) {
	return through(ctx, p, Call{Method: "EnsureLoadBalancer", Key: spec.Key}, func(inner provider.LoadBalancerController) (*provider.LoadBalancer, error) {
		return inner.EnsureLoadBalancer(ctx, spec)
	})
}

func (p *intercepted) GetLoadBalancer(ctx context.Context, key string) (*provider.LoadBalancer, error) {
	return through(ctx, p, Call{Method: "GetLoadBalancer", Key: key}, func(inner provider.LoadBalancerController) (*provider.LoadBalancer, error) {
		return inner.GetLoadBalancer(ctx, key)
	})
}

func (p *intercepted) ListLoadBalancers(ctx context.Context, match map[string]string) ([]provider.LoadBalancer, error) {
	return through(ctx, p, Call{Method: "ListLoadBalancers", Match: match}, func(inner provider.LoadBalancerController) ([]provider.LoadBalancer, error) {
		return inner.ListLoadBalancers(ctx, match)
	})
}

func (p *intercepted) DeleteLoadBalancer(ctx context.Context, key string) error {
	return only(ctx, p, Call{Method: "DeleteLoadBalancer", Key: key}, func(inner provider.LoadBalancerController) error {
		return inner.DeleteLoadBalancer(ctx, key)
	})
}

func (p *intercepted) ImportImage(ctx context.Context, source provider.ImageSource, progress func(provider.ImageProgress)) (string, error) {
	return through(ctx, p, Call{Method: "ImportImage"}, func(inner provider.ImageImporter) (string, error) {
		return inner.ImportImage(ctx, source, progress)
	})
}

func (p *intercepted) VerifyConfig(ctx context.Context) error {
	return only(ctx, p, Call{Method: "VerifyConfig"}, func(inner provider.ContextVerifier) error { return inner.VerifyConfig(ctx) })
}

func (p *intercepted) TeardownContext(ctx context.Context) error {
	return only(ctx, p, Call{Method: "TeardownContext"}, func(inner provider.ContextCloser) error { return inner.TeardownContext(ctx) })
}
