// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/provider"
)

// State is where a sandbox is in its life.
type State string

// Sandbox states. A removed sandbox has none: it is forgotten.
const (
	// StateCreating: CreateVM is running; nothing outside this process exists.
	StateCreating State = "creating"
	// StateCreated: CreateVM has succeeded; there is no VM yet.
	StateCreated State = "created"
	// StateStarting: StartVM is running.
	StateStarting State = "starting"
	// StateReady: the pod can use its agent.
	StateReady State = "ready"
	// StateWaiting: it is a VM of this node's own pool, which waits for a pod or is claimed by one.
	StateWaiting State = "waiting"
	// StateStopping: everything is being undone until nothing is left.
	StateStopping State = "stopping"
)

// recordFormat is the version of the journal's format. A file of another
// version is treated as damaged.
const recordFormat = 1

// Record is what the journal keeps of a sandbox: all that a new process needs
// to go on with it or to undo it.
type Record struct {
	Format  int       `json:"format"`
	ID      string    `json:"id"`
	State   State     `json:"state"`
	Created time.Time `json:"created"`
	// Step is the furthest step that was begun.
	Step string `json:"step"`
	// Provider is the name of the cloud that made the instance.
	Provider     string `json:"provider"`
	PodName      string `json:"pod-name"`
	PodNamespace string `json:"pod-namespace"`
	// PodUID is the orchestrator's; empty while it could not be asked.
	PodUID string `json:"pod-uid,omitempty"`
	// Netns is the path of the pod's network namespace; empty without one.
	Netns string `json:"netns,omitempty"`
	// KeepIdle exempts the sandbox from the orphan timeout.
	KeepIdle bool `json:"keep-idle,omitempty"`
	// Spec is what the provider is asked for, owner tags included.
	Spec provider.InstanceTypeSpec `json:"spec"`
	// Initdata is the pod's own, base64 of gzip of TOML; dropped when ready.
	Initdata string `json:"initdata,omitempty"`
	// InitdataDigest is that of the initdata which the VM gets, written as
	// algorithm:hex; empty without.
	InitdataDigest string `json:"initdata-digest,omitempty"`
	// Network is nil for a sandbox without a network namespace.
	Network *podnetwork.Config `json:"network,omitempty"`
	// TLS is the node's half of the sandbox's identity; nil without TLS of
	// our own (own CA, or TLS disabled).
	TLS *NodeIdentity `json:"tls,omitempty"`

	// InstanceName is the name the VM is asked to have; also its server name.
	InstanceName string `json:"instance-name"`
	// InstanceID, Addresses, InstanceType and Zone come from the provider; the
	// last two may be empty.
	InstanceID   string       `json:"instance-id,omitempty"`
	Addresses    []netip.Addr `json:"addresses,omitempty"`
	InstanceType string       `json:"instance-type,omitempty"`
	Zone         string       `json:"zone,omitempty"`
	// PoolVM is the PeerPod, as namespace/name, of the instance if it was taken from a pool, or
	// the sandbox if that pool is this node's own.
	PoolVM string `json:"pool-vm,omitempty"`
	// Pooled says that this is a VM of this node's own pool; ClaimedBy is the sandbox that it
	// belongs to from then on, and which removes it.
	Pooled    bool   `json:"pooled,omitempty"`
	ClaimedBy string `json:"claimed-by,omitempty"`
	// Done is when the steps up to the last record were done, and parts of them.
	Done []StepTime `json:"done,omitempty"`
	// Asked is when the provider was first asked for the instance.
	Asked time.Time `json:"asked,omitzero"`
	// NoInstance is set when the provider certainly created nothing, so that
	// there is nothing to look for.
	NoInstance bool `json:"no-instance,omitempty"`
	// LastError is the last failure, for humans.
	LastError string `json:"last-error,omitempty"`
}

// StepTime is when a step was done, and how long it took, in nanoseconds; 0 in records of
// older versions.
type StepTime struct {
	Step string        `json:"step"`
	At   time.Time     `json:"at"`
	Took time.Duration `json:"took,omitempty"`
}

// NodeIdentity is what the node needs to reach the VM's agent again, PEM.
type NodeIdentity struct {
	CA         string `json:"ca"`
	ClientCert string `json:"client-cert"`
	ClientKey  string `json:"client-key"`
}

// begun reports whether the step of that name, or a later one, was begun.
func (r *Record) begun(step string) bool {
	return r.Step != "" && stepIndex(r.Step) >= stepIndex(step)
}

// tunnelAddress returns the VM's end of the tunnel: the second interface if the tunnel
// has an interface of its own.
func (r *Record) tunnelAddress() (netip.Addr, error) {
	if len(r.Addresses) == 0 {
		return netip.Addr{}, errors.New("the instance has no address")
	}
	if r.Network == nil || !r.Network.Dedicated {
		return r.Addresses[0], nil
	}
	if len(r.Addresses) < 2 {
		return netip.Addr{}, fmt.Errorf("the tunnel uses an interface of its own but the instance has one address only (%s); leave -host-interface empty or give the VM a second interface", r.Addresses[0])
	}
	return r.Addresses[1], nil
}

// check reports whether a record read from disk makes sense.
func (r *Record) check(id string) error {
	switch {
	case r.Format != recordFormat:
		return fmt.Errorf("format %d, this program knows %d", r.Format, recordFormat)
	case r.ID != id:
		return fmt.Errorf("it is about sandbox %q", r.ID)
	case stepIndex(r.Step) < 0:
		return fmt.Errorf("unknown step %q", r.Step)
	}
	switch r.State {
	case StateCreated, StateStarting, StateReady, StateWaiting, StateStopping:
		return nil
	}
	return fmt.Errorf("unknown state %q", r.State)
}
