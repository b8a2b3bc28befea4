// SPDX-License-Identifier: Apache-2.0

// Package reconciler implements Cluster API's contract for infrastructure, once for
// all kinds: ownership, pausing, ordering, conditions and deletion. The kinds'
// backends are a [ClusterBackend] and a [MachineBackend].
//
// The same steps happen in every reconciliation:
//
//  1. An object that is paused, or that clusterctl moves away, is left alone
//     except for its condition Paused.
//  2. A finalizer and the identity of what will be made are stored in one
//     patch, before anything is made. The identity is an annotation: it
//     survives a move to another management cluster, which changes UIDs and
//     loses the status.
//  3. What is missing is a condition with a reason: the cluster's
//     infrastructure, the bootstrap data.
//  4. That the making begins is stored too, then the backend is called. It is
//     idempotent by the identity, so that it does not matter how often a
//     manager dies between two calls.
//  5. providerID, then the status with addresses, failure domain and
//     conditions are written if they differ. Nothing is written otherwise.
//
// A deletion needs the identity alone. It ends when the backend says that
// nothing is left.
package reconciler

// What the manager may do, from which config/rbac/role.yaml is made. It reads
// Secrets by name only, those with bootstrap data, and ConfigMaps with templates of
// load balancers' configurations; a pool makes and removes
// machines; metrics are for those that the API server says may read them.
//
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=dockerclusters;dockermachines;dockermachinepools;outriggerclusters;outriggermachines,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=dockermachines,verbs=create;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=dockerclusters/status;dockermachines/status;dockermachinepools/status;outriggerclusters/status;outriggermachines/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=dockerclusters/finalizers;dockermachines/finalizers;dockermachinepools/finalizers;outriggerclusters/finalizers;outriggermachines/finalizers,verbs=update
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=dockermachinetemplates;outriggermachinetemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=dockermachinetemplates/status;outriggermachinetemplates/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines;machinepools,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=delete
// +kubebuilder:rbac:groups="",resources=secrets;configmaps,verbs=get
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
