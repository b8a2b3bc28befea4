// SPDX-License-Identifier: Apache-2.0

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
