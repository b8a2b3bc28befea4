// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// LoadBalancerController makes load balancers. A cloud controller manager needs
// it for Services of type LoadBalancer.
type LoadBalancerController interface {
	// EnsureLoadBalancer makes the load balancer of spec.Key, or makes the one
	// that is there as spec says, and returns when it takes connections. Ports
	// and backends may change while it lives; its addresses SHOULD stay. Two
	// calls with one key, also after a lost reply, at the same time or from
	// different processes, MUST NOT give two that stay. After an error the
	// caller tries again or deletes the key.
	//
	// Errors: ErrInvalidArgument (a spec that [LoadBalancerSpec.Check] refuses,
	// and what the cloud cannot do, such as a protocol or an annotation of its
	// own with a wrong value; the message names it), ErrNotFound (image,
	// network), ErrAlreadyExists (what has its name is somebody else's), and
	// those of CreateInstance.
	EnsureLoadBalancer(ctx context.Context, spec LoadBalancerSpec) (*LoadBalancer, error)
	// GetLoadBalancer returns ErrNotFound for a key that has none.
	GetLoadBalancer(ctx context.Context, key string) (*LoadBalancer, error)
	// ListLoadBalancers returns every load balancer whose tags include all of
	// match, and none that is not the provider's own. An empty match is
	// ErrInvalidArgument. One that was made just now MAY be missing for a while.
	ListLoadBalancers(ctx context.Context, match map[string]string) ([]LoadBalancer, error)
	// DeleteLoadBalancer removes it with all that belongs to it, and no
	// instance. Deleting what does not exist MUST return nil.
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
	// Annotations are those of the Service. A provider reads its own, which it
	// knows by their names, and MUST refuse its own that it cannot keep.
	Annotations map[string]string
}

// Protocols of ports.
const (
	ProtocolTCP = "TCP"
	ProtocolUDP = "UDP"
)

// LoadBalancerPort is a port, and the one of all backends that it leads to.
type LoadBalancerPort struct {
	Port, Target uint16
	// Protocol is [ProtocolTCP], which it is by default, or [ProtocolUDP], which
	// not every provider has.
	Protocol string
}

// TCP reports whether the port is one of TCP.
func (p LoadBalancerPort) TCP() bool { return p.Protocol == "" || p.Protocol == ProtocolTCP }

// LoadBalancerBackend is a machine.
type LoadBalancerBackend struct {
	// Name is that of the Node.
	Name string
	// Addr is the Node's.
	Addr netip.Addr
	// InstanceID is the Node's instance at the provider, and empty when the Node
	// is none of the provider's.
	InstanceID string
}

// LoadBalancer is one that is there.
type LoadBalancer struct {
	// Key is the one it was made with.
	Key string
	// Addrs are where clients connect to.
	Addrs []netip.Addr
	Tags  map[string]string
	// Ports and Backends are what the cloud has now. Nil is: it does not tell.
	// Backends have what the cloud knows: the instance or the address.
	Ports    []LoadBalancerPort
	Backends []LoadBalancerBackend
}

var loadBalancerKey = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// Check returns ErrInvalidArgument for a spec that no provider can take.
func (s LoadBalancerSpec) Check() error {
	switch {
	case !loadBalancerKey.MatchString(s.Key):
		return fmt.Errorf("%w: the key %q is not 1 to 63 of a-z, 0-9 and -", ErrInvalidArgument, s.Key)
	case len(s.Ports) == 0:
		return fmt.Errorf("%w: it has no port", ErrInvalidArgument)
	}
	seen := map[string]bool{}
	for _, port := range s.Ports {
		id := fmt.Sprintf("%d/%s", port.Port, strings.ToLower(port.Protocol))
		if port.TCP() {
			id = fmt.Sprintf("%d/tcp", port.Port)
		}
		switch {
		case port.Port == 0 || port.Target == 0:
			return fmt.Errorf("%w: port %d to %d: 0 is none", ErrInvalidArgument, port.Port, port.Target)
		case !port.TCP() && port.Protocol != ProtocolUDP:
			return fmt.Errorf("%w: port %d has the protocol %q, which is neither %s nor %s", ErrInvalidArgument, port.Port, port.Protocol, ProtocolTCP, ProtocolUDP)
		case seen[id]:
			return fmt.Errorf("%w: port %s is there twice", ErrInvalidArgument, id)
		}
		seen[id] = true
	}
	return nil
}

// CheckTCP is Check for providers that support only TCP.
func (s LoadBalancerSpec) CheckTCP() error {
	for _, port := range s.Ports {
		if !port.TCP() {
			return fmt.Errorf("%w: port %d is %s: this provider's load balancers have TCP only", ErrInvalidArgument, port.Port, port.Protocol)
		}
	}
	return s.Check()
}
