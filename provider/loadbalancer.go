// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"net/netip"
)

// LoadBalancerController makes load balancers of TCP ports. A cloud controller
// manager needs it for Services of type LoadBalancer. It is an optional power of
// providers that are built in: plugins do not carry it, and it is none of
// [Powers].
type LoadBalancerController interface {
	// EnsureLoadBalancer makes the load balancer of spec.Key, or makes the one
	// that is there as spec says, and returns when it takes connections. Ports
	// and backends may change while it lives; its addresses SHOULD stay. Two
	// calls with one key, also after a lost reply, MUST NOT give two.
	//
	// Errors: ErrInvalidArgument (what the cloud cannot do, such as UDP; the
	// message names it), ErrNotFound (image, network), ErrAlreadyExists (what
	// has its name is somebody else's), and those of CreateInstance.
	EnsureLoadBalancer(ctx context.Context, spec LoadBalancerSpec) (*LoadBalancer, error)
	// GetLoadBalancer answers ErrNotFound for a key that has none.
	GetLoadBalancer(ctx context.Context, key string) (*LoadBalancer, error)
	// DeleteLoadBalancer removes it with all that belongs to it. Deleting what
	// does not exist MUST return nil.
	DeleteLoadBalancer(ctx context.Context, key string) error
}

// LoadBalancerSpec is what a load balancer is to be.
type LoadBalancerSpec struct {
	// Key is the idempotency key: 1 to 63 lower-case letters, digits and '-'.
	Key string
	// Ports are what is listened on; each leads to the same backends.
	Ports []LoadBalancerPort
	// Backends may be none: then connections are refused or closed.
	Backends []LoadBalancerBackend
	// Tags are the owner tags.
	Tags map[string]string
}

// LoadBalancerPort is a TCP port, and the one of all backends that it leads to.
type LoadBalancerPort struct{ Port, Target uint16 }

// LoadBalancerBackend is a machine.
type LoadBalancerBackend struct {
	// Name is that of the Node.
	Name string
	Addr netip.Addr
}

// LoadBalancer is one that is there.
type LoadBalancer struct {
	// Addrs are where clients connect to.
	Addrs []netip.Addr
}
