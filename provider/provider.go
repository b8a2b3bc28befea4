// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"flag"
	"net/netip"
	"time"

	"github.com/outrigger/outrigger/provider/cloudinit"
)

// CloudProvider is the manager of one cloud: it turns flags and environment
// into a [Provider]. A manager holds the configuration of one provider; it
// keeps none in package variables.
type CloudProvider interface {
	// ParseCmd registers the provider's flags. It MUST NOT parse them. Flags
	// whose default comes from the environment read it here or in LoadEnv.
	ParseCmd(flags *flag.FlagSet)

	// LoadEnv fills from the environment what no flag has set. It is called
	// after the flags were parsed. It cannot fail: what does not parse MUST be
	// reported by NewProvider.
	LoadEnv()

	// NewProvider validates the configuration and connects. Bad configuration
	// MUST give an [ErrInvalidArgument] that names every flag or variable in
	// question. It MUST NOT create billable resources. See [ContextOpener].
	NewProvider() (Provider, error)
}

// MinUserData is how many bytes of user-data every provider takes: the least
// that a large cloud allows (EC2, RunInstances).
const MinUserData = 16 << 10

// Provider makes and removes the instances of one cloud. All methods MUST be
// safe for concurrent use and MUST return soon after their context ends.
type Provider interface {
	// CreateInstance makes one instance for a pod and returns when the cloud
	// has accepted it and its primary address is known. It need not wait for
	// the guest to boot.
	//
	// sandboxID is the idempotency key: 1 to 64 letters, digits, '-', '_' and
	// '.', all of which are significant. An empty key is ErrInvalidArgument. Two
	// calls with the same key, also at the same time, from another process, or
	// after a lost reply, MUST return the same instance, running or stopped; they
	// MUST NOT make two. If the second call has another spec it returns that
	// instance or ErrAlreadyExists. A key is free again when its instance is
	// deleted or its creation has failed for good.
	//
	// podName is for humans and can be anything, also long or empty: providers
	// SHOULD use it, with the first eight characters of the key, in the
	// instance's name (see [InstanceName]).
	//
	// cloudConfig is generated once and passed on unchanged as user-data. A
	// provider MUST accept up to [MinUserData] bytes of it, and MUST accept a nil
	// or empty one. More than the cloud accepts, and a cloudConfig that fails,
	// are ErrInvalidArgument. User-data is never truncated.
	//
	// The arguments stay the caller's: the provider MUST NOT change or keep
	// spec.Tags. What a provider returns belongs to the caller too.
	//
	// All resources that belong to the instance (disks, interfaces, addresses)
	// MUST carry spec.Tags and go away with the instance. On an error the
	// provider MUST either have removed what it made or return, with the
	// error, an Instance whose ID the caller can delete.
	//
	// Errors: ErrInvalidArgument (spec the cloud cannot satisfy, unknown image
	// or type, whose name the error MUST hold; negative size), ErrCapacity,
	// ErrQuota, ErrUnauthenticated, ErrPermissionDenied, ErrUnavailable. The
	// class of a call that failed because its context ended MUST be one that
	// is [Retryable].
	CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec InstanceTypeSpec) (*Instance, error)

	// DeleteInstance removes an instance and everything that belongs to it.
	// It returns nil only when nothing billable is left or the cloud has
	// accepted the removal of all of it. It deletes nothing else.
	//
	// Deleting an instance that does not exist, or is being deleted, MUST return
	// nil, but only after the cloud has looked for it: refused credentials or an
	// unknown account MUST be an error and MUST NOT be ErrNotFound. An id that
	// the cloud can never have given MAY be ErrInvalidArgument; an empty one MUST
	// be.
	//
	// A deletion that was interrupted can be repeated. The instance may be in any
	// state, stopped or still being made.
	DeleteInstance(ctx context.Context, instanceID string) error

	// Teardown releases the provider's own resources (connections, goroutines).
	// It MUST NOT delete instances. It is called once, last. Any later call
	// returns soon, with or without an error. See [ContextCloser].
	Teardown() error

	// ConfigVerifier checks against the cloud that instances can be made:
	// credentials, permissions, image, network, type. It MUST NOT leave
	// anything behind or touch instances, and can be repeated, also at the same
	// time. It SHOULD report everything that is wrong at once, joined with
	// [errors.Join]. See [ContextVerifier].
	ConfigVerifier() error
}

// Instance is what a provider reports one VM.
type Instance struct {
	// ID is the provider's own, unique while the instance exists.
	ID string
	// Name is for humans: a DNS label (RFC 1123) that differs from those of other
	// instances, also of the same pod name.
	Name string
	// IPs holds the addresses at which this node reaches the VM. IPs[0] is the
	// primary one; IPs[1], if any, is that of a dedicated tunnel interface. They
	// belong to this instance alone, are never loopback addresses, and do not
	// change while it exists.
	IPs []netip.Addr

	// Key is the sandboxID the instance was made with. CreateInstance MAY
	// leave it empty; Lister and Getter MUST fill it.
	Key string
	// Tags are the owner tags. CreateInstance MAY leave them nil.
	Tags map[string]string
	// Created is when the cloud made the instance; zero when unknown.
	Created time.Time
	// State is where the instance is in its life; empty means unknown.
	State InstanceState

	// Zone and Region are where the cloud put it and Type is the type it has,
	// in the cloud's own names; empty when unknown or when the cloud has no
	// such thing. Lister and Getter SHOULD fill them.
	Zone, Region, Type string
}

// InstanceState is the life cycle of an instance as far as Outrigger cares.
type InstanceState string

// Instance states. There is none for deleted instances, which do not exist.
const (
	StatePending  InstanceState = "pending"
	StateRunning  InstanceState = "running"
	StateStopped  InstanceState = "stopped"
	StateDeleting InstanceState = "deleting"
)

// InstanceTypeSpec says what kind of instance a pod wants. Zero values mean
// "the provider's default".
type InstanceTypeSpec struct {
	// InstanceType is the cloud's name of a type. If it is set, sizes are ignored.
	InstanceType string
	// VCPUs is the number of virtual CPUs; it may be set without Memory.
	VCPUs int64
	// Memory is in MiB; it may be set without VCPUs.
	Memory int64
	// Arch is a GOARCH name.
	Arch string
	// GPUs is the number of GPUs.
	GPUs int64
	// GPU is the model of GPU, such as nvidia-l4; empty is any.
	GPU string
	// Image replaces the configured image.
	Image string
	// MultiNic asks for a second interface with a route to the outside.
	MultiNic bool
	// Zone is where it is to be, and what Zone of the instance that CreateInstance returns
	// MUST be then; empty is the provider's choice. A zone that the cloud does not have, or
	// in which this provider makes no instances, is ErrInvalidArgument.
	Zone string
	// Volumes are disks to attach, in the order of their LUN.
	Volumes []CloudVolume

	// Tags are the owner tags; every resource made MUST carry them.
	Tags map[string]string
}

// CloudVolume is an existing disk of the cloud.
type CloudVolume struct {
	// DiskID is the cloud's id of the disk.
	DiskID string
}

// Owner tag keys. Values contain only characters that every cloud accepts:
// letters, digits, '-', '_', '.' and ':' .
const (
	// TagCluster names the cluster that owns a resource.
	TagCluster = "outrigger-cluster"
	// TagNode names the node that requested it.
	TagNode = "outrigger-node"
	// TagNamespace and TagPod name the pod.
	TagNamespace = "outrigger-namespace"
	TagPod       = "outrigger-pod"
	// TagKey is the idempotency key (sandbox id).
	TagKey = "outrigger-key"
	// TagCreated is the time of the request, RFC 3339 in UTC, ':' kept.
	TagCreated = "outrigger-created"
)

// Lister lists instances by owner; garbage collection needs it.
type Lister interface {
	// ListInstances returns every instance whose tags include all of match, in
	// any state in which it still costs money. Remains of an instance, such as a
	// disk, are listed as an instance in StateDeleting: callers delete again what
	// stays in that state. It MUST NOT return other instances. The provider
	// handles pagination.
	//
	// Without access to the account it MUST fail; it MUST NOT return an empty
	// list then. An empty match is ErrInvalidArgument: it would match instances
	// of others. If nothing matches the list is empty. If the cloud is
	// eventually consistent the list MAY lag behind.
	//
	// ID, Name and IPs are those that CreateInstance returned.
	ListInstances(ctx context.Context, match map[string]string) ([]Instance, error)
}

// Getter looks up one instance; a cloud controller manager needs it.
type Getter interface {
	// GetInstance returns ErrNotFound only if the cloud has said that there is no
	// such instance: callers then delete what belongs to it. For an id that the
	// cloud can never have given it returns ErrNotFound or ErrInvalidArgument.
	GetInstance(ctx context.Context, instanceID string) (*Instance, error)
}

// ConsoleReader reads what a VM wrote to its serial console.
type ConsoleReader interface {
	// Console returns the last tailBytes bytes; fewer if there are no more. It
	// returns ErrNotFound for an id that does not exist and ErrInvalidArgument
	// for a negative number.
	Console(ctx context.Context, instanceID string, tailBytes int64) ([]byte, error)
}

// PowerController stops and starts instances without losing their disks. A
// stopped instance keeps its addresses, tags and key, and is listed.
type PowerController interface {
	// PowerOff and PowerOn return nil if the instance is in that state already.
	// They return ErrNotFound for an id that does not exist.
	PowerOff(ctx context.Context, instanceID string) error
	PowerOn(ctx context.Context, instanceID string) error
}

// InstanceTypeLister is the catalogue of instance types.
type InstanceTypeLister interface {
	// InstanceTypes returns every type once. The result changes only when the cloud
	// does.
	InstanceTypes(ctx context.Context) ([]InstanceType, error)
}

// InstanceType is one row of a catalogue.
type InstanceType struct {
	Name   string
	VCPUs  int64
	Memory int64 // MiB
	GPUs   int64
	GPU    string // model, empty when none
	Arch   string // GOARCH name
	Zones  []string
	Price  float64 // per hour in the cloud's currency; 0 when unknown
}

// NodeAddresser returns the address at which VMs reach this node, if it is not that of
// the node's default route, for instance that of the provider's own bridge.
type NodeAddresser interface {
	// NodeAddress returns the same address while the provider lives.
	NodeAddress(ctx context.Context) (netip.Addr, error)
}
