// SPDX-License-Identifier: Apache-2.0

// Package v1beta2 is the API of Outrigger as an infrastructure provider of
// Cluster API, in the shape of its contract v1beta2. It is the version that is
// stored; others are converted from and to it.
//
// Docker* kinds are machines that are containers of a Docker Engine.
// Outrigger* kinds are machines that are instances of any Outrigger provider.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta2
