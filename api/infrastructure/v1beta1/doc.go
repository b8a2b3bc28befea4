// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 has the kinds of package v1beta2 in the shape of Cluster API's contract
// v1beta1. It is also the version in which manifests for Cluster API's own provider of the
// Docker kinds are written. Objects are converted; none are stored so.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta1
