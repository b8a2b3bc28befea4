// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// InfraCluster is a kind of cluster infrastructure.
type InfraCluster interface {
	object
	ContractCluster() (*infrav1.ClusterSpec, *infrav1.ClusterStatus)
}

// InfraMachine is a kind of machine infrastructure.
type InfraMachine interface {
	object
	ContractMachine() (*infrav1.MachineSpec, *infrav1.MachineStatus)
}

// ClusterBackend provides what a cluster needs besides machines. Its methods
// MUST be idempotent by the scope's key, MUST find what they made by that key,
// never by a name, and MUST NOT block for long: long work runs in the
// background, and the [Enqueuer] enqueues the object when there is news. Errors
// have the classes of package provider; they decide when the call is repeated.
type ClusterBackend interface {
	// EnsureCluster creates what is missing, repairs what is broken, and
	// returns the state. It is called in every reconciliation, also when all is
	// well.
	EnsureCluster(context.Context, *ClusterScope) (ClusterState, error)

	// DeleteCluster removes everything that carries the key and reports whether
	// nothing is left. It is called until then. There are no machines any more.
	DeleteCluster(context.Context, *ClusterScope) (gone bool, err error)
}

// MachineBackend provides machines. The rules of [ClusterBackend] apply here,
// too.
type MachineBackend interface {
	// EnsureMachine makes the machine, or observes the one there is.
	//
	// Once the object has a providerID it MUST NOT make another machine nor
	// bootstrap one: the machine of that providerID is observed, Bootstrap and
	// InfraCluster may be missing, and if it is gone the returned state is not
	// Ready. A providerID of a machine that does not carry the key is somebody
	// else's: the state is not Ready, and nothing is done to it.
	EnsureMachine(context.Context, *MachineScope) (MachineState, error)

	// DeleteMachine removes everything that carries the key, also what is still
	// being made, and reports whether nothing is left. It is called until then.
	// Only Infra, Key, ClusterKey and Began are always set.
	DeleteMachine(context.Context, *MachineScope) (gone bool, err error)
}

// Placer is implemented by backends that make the machines of different clusters at
// different places. The place of a cluster is stored when it is provisioned, that of a
// machine before it is made, so that they are found again when the manager's default
// changes.
type Placer interface {
	// Place returns the name of the place of a cluster's machines; of a cluster whose
	// infrastructure is not ours, which is nil, it is the default. Empty: there is none.
	Place(InfraCluster) string
}

// ClusterScope is one cluster in one reconciliation.
type ClusterScope struct {
	// Cluster is nil in the deletion of an object whose Cluster is gone.
	Cluster *clusterv1.Cluster
	// Infra is for reading, except for what of its status the contract does
	// not know.
	Infra InfraCluster
	// Key is the identity: whatever is made carries it.
	Key string
}

// ClusterState is the state of a cluster as its backend sees it.
type ClusterState struct {
	// Provisioned is set when machines may be made.
	Provisioned bool
	// Endpoint is where the control plane is reached; empty when the backend
	// has none to give.
	Endpoint       clusterv1.APIEndpoint
	FailureDomains []clusterv1.FailureDomain
	// Reason and Message say what is waited for or, of a cluster that is
	// provisioned, what is wrong with it now. An empty reason: nothing.
	Reason, Message string
	// Conditions are the backend's own. One that is not True makes Ready so.
	Conditions []metav1.Condition
	// RequeueAfter is when to look again without any event; 0: never.
	RequeueAfter time.Duration
}

// MachineScope is one machine in one reconciliation.
type MachineScope struct {
	// Cluster and Machine are nil in a deletion when they are gone,
	// InfraCluster is also nil when it is of another kind.
	Cluster      *clusterv1.Cluster
	Machine      *clusterv1.Machine
	InfraCluster InfraCluster
	// Infra is for reading, except for what of its status the contract does
	// not know.
	Infra InfraMachine
	// Key is the machine's identity and ClusterKey its cluster's: whatever is
	// made carries both. ClusterKey is empty when the deletion of a machine
	// comes before its cluster was known.
	Key, ClusterKey string
	// Began is when EnsureMachine was called first, and zero if it never was:
	// then there is nothing that carries the key.
	Began time.Time
	// Bootstrap is what the machine starts with, and Format what it is:
	// cloud-config or ignition.
	Bootstrap []byte
	Format    string
	// ControlPlane says that the machine is one of the control plane.
	ControlPlane bool
	// FailureDomain is the one it must be in; empty: any.
	FailureDomain string
}

// Formats of bootstrap data.
const (
	FormatCloudConfig = "cloud-config"
	FormatIgnition    = "ignition"
)

// MachineState is the state of a machine as its backend sees it.
type MachineState struct {
	// Step is the step that was begun last, in UpperCamelCase; it is stored in
	// the status.
	Step string
	// ProviderID is set, and then for ever, when the machine is complete.
	ProviderID string
	Addresses  []clusterv1.MachineAddress
	// FailureDomain is the one the machine is in; empty when unknown.
	FailureDomain string
	// Provisioned is set when the machine is complete; it needs ProviderID.
	Provisioned bool
	// Reason and Message say what is waited for or, of a machine that is
	// provisioned, what is wrong with it now. An empty reason: nothing.
	Reason, Message string
	// Conditions are the backend's own. One that is not True makes Ready so.
	Conditions []metav1.Condition
	// RequeueAfter is when to look again without any event; 0: never.
	RequeueAfter time.Duration
}
