// SPDX-License-Identifier: Apache-2.0

package v1beta2

// KeyAnnotation holds the random key by which everything that an object has
// outside of the cluster is found again. It is written together with the
// finalizer before anything is made, and never changes: unlike the UID it
// survives `clusterctl move`.
const KeyAnnotation = "infrastructure.outrigger.dev/key"

// Finalizers: the object stays until what it has outside is gone. Those of
// Docker kinds have the names that objects of Cluster API's own provider carry.
const (
	DockerClusterFinalizer     = "dockercluster.infrastructure.cluster.x-k8s.io"
	DockerMachineFinalizer     = "dockermachine.infrastructure.cluster.x-k8s.io"
	DockerMachinePoolFinalizer = "dockermachinepool.infrastructure.cluster.x-k8s.io"
	OutriggerClusterFinalizer  = "outriggercluster.infrastructure.cluster.x-k8s.io"
	OutriggerMachineFinalizer  = "outriggermachine.infrastructure.cluster.x-k8s.io"
)
