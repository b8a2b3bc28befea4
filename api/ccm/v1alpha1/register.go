// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API of cloud controller managers on plain Kubernetes:
// one object says which one runs, and how it is.
//
// +kubebuilder:object:generate=true
// +groupName=ccm.outrigger.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of CloudControllerManagers.
var GroupVersion = schema.GroupVersion{Group: "ccm.outrigger.dev", Version: "v1alpha1"}

// Resource is the plural as it stands in URLs and RBAC rules.
const Resource = "cloudcontrollermanagers"

// AddToScheme registers the types.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &CloudControllerManager{}, &CloudControllerManagerList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
