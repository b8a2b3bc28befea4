// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of PeerPods and PodVMPools.
var GroupVersion = schema.GroupVersion{Group: "confidentialcontainers.org", Version: "v1alpha1"}

// Resource and PoolResource are the plurals as they stand in URLs and RBAC rules.
const (
	Resource     = "peerpods"
	PoolResource = "podvmpools"
)

// AddToScheme registers the types.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &PeerPod{}, &PeerPodList{}, &PodVMPool{}, &PodVMPoolList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
