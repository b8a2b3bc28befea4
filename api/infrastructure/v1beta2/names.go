// SPDX-License-Identifier: Apache-2.0

package v1beta2

import "strings"

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
	// ProviderAnnotation is the provider that an OutriggerMachine is at, and that of an
	// OutriggerCluster which names none: the manager's default when it was seen first.
	ProviderAnnotation = "infrastructure.outrigger.dev/provider"
)

// Finalizers: the object stays until what it has outside is gone. The part before
// the slash is a domain of ours: the API server warns of finalizers without one.
const (
	DockerClusterFinalizer     = finalizerDomain + "dockercluster"
	DockerMachineFinalizer     = finalizerDomain + "dockermachine"
	DockerMachinePoolFinalizer = finalizerDomain + "dockermachinepool"
	OutriggerClusterFinalizer  = finalizerDomain + "outriggercluster"
	OutriggerMachineFinalizer  = finalizerDomain + "outriggermachine"

	finalizerDomain = "infrastructure.outrigger.dev/"
)

// FormerFinalizer returns the name that a finalizer had without a slash, which
// objects carry that an earlier version has made, or Cluster API's own provider of
// the Docker kinds.
func FormerFinalizer(finalizer string) string {
	return strings.TrimPrefix(finalizer, finalizerDomain) + "." + GroupVersion.Group
}
