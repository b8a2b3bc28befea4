// SPDX-License-Identifier: Apache-2.0

package v1beta2

// KeyAnnotation holds the random key by which everything that an object has
// outside of the cluster is found again. It is written together with the
// finalizer before anything is made, and never changes: unlike the UID it
// survives `clusterctl move`.
const KeyAnnotation = "infrastructure.outrigger.dev/key"

// Annotations that are a part of a machine's identity beside [KeyAnnotation], and
// no more to be changed than that.
const (
	// ClusterKeyAnnotation is the key of the cluster that a machine is of.
	ClusterKeyAnnotation = "infrastructure.outrigger.dev/cluster-key"
	// BeganAnnotation is when the making of a machine began.
	BeganAnnotation = "infrastructure.outrigger.dev/began"
)

// Finalizers: the object stays until what it has outside is gone. Those of
// Docker kinds have the names that objects of Cluster API's own provider carry.
const (
	DockerClusterFinalizer     = "dockercluster.infrastructure.cluster.x-k8s.io"
	DockerMachineFinalizer     = "dockermachine.infrastructure.cluster.x-k8s.io"
	DockerMachinePoolFinalizer = "dockermachinepool.infrastructure.cluster.x-k8s.io"
	OutriggerClusterFinalizer  = "outriggercluster.infrastructure.cluster.x-k8s.io"
	OutriggerMachineFinalizer  = "outriggermachine.infrastructure.cluster.x-k8s.io"
)
