// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the kinds of package v1beta2 in the shape of Cluster
// API's contract v1beta1. Objects are converted; none are stored so.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1alpha1
