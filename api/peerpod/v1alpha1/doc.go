// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API of PeerPods: one object for each pod VM, made
// before the VM and gone after it.
//
// +kubebuilder:object:generate=true
// +groupName=confidentialcontainers.org
package v1alpha1
