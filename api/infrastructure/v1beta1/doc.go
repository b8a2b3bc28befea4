// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 has the Docker kinds under the version in which manifests for Cluster
// API's own provider of these kinds are written. It is the shape of package v1alpha1.
// Objects are converted; none are stored so.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta1
