// SPDX-License-Identifier: Apache-2.0

package volumes

import "context"

// Placement is where the pods of a volume run.
type Placement string

// Placements.
const (
	// OnNode is for ordinary pods: the node has the disk.
	OnNode Placement = "node"
	// InVM is for pods in VMs: the VM has the disk.
	InVM Placement = "vm"
)

// Workloads knows the pods. A volume is only ever given to those that the API server names.
type Workloads interface {
	// Placement returns where the pods run that use a volume on a node. Pods of both
	// kinds, and none, are errors.
	Placement(ctx context.Context, volumeID, nodeID string) (Placement, error)
	// Pod returns the pod that volumes are published for.
	Pod(ctx context.Context, namespace, name, uid string) (*Pod, error)
	// Attached returns for whom a volume is attached to a node by what is on record, which kubelet
	// goes by; empty if it is not.
	Attached(ctx context.Context, volumeID, nodeID string) (Placement, error)
	// InVMs returns, for each volume that is published for pods in VMs, the ids of
	// the nodes.
	InVMs(ctx context.Context) (map[string][]string, error)
	// IsNode reports whether an instance is a Node. What has a disk and is none is a VM, of a pod
	// or of somebody else.
	IsNode(ctx context.Context, instanceID string) (bool, error)
}

// Pod is what the node has to know of one.
type Pod struct {
	Placement Placement
	// FSGroup is the group that its files get; nil for none.
	FSGroup *int64
	// FSGroupChangePolicy is as in the API; empty for the default.
	FSGroupChangePolicy string
}

// Nowhere is for a driver without a cluster: every volume is the node's, and nobody's in particular.
type Nowhere struct{}

// Placement implements [Workloads].
func (Nowhere) Placement(context.Context, string, string) (Placement, error) { return OnNode, nil }

// Pod implements [Workloads].
func (Nowhere) Pod(context.Context, string, string, string) (*Pod, error) {
	return &Pod{Placement: OnNode}, nil
}

// Attached implements [Workloads].
func (Nowhere) Attached(context.Context, string, string) (Placement, error) { return "", nil }

// InVMs implements [Workloads].
func (Nowhere) InVMs(context.Context) (map[string][]string, error) { return nil, nil }

// IsNode implements [Workloads].
func (Nowhere) IsNode(context.Context, string) (bool, error) { return true, nil }
