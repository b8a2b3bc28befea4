// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API of cloud controller managers on plain Kubernetes:
// one object says which one runs, and how it is.
//
// +kubebuilder:object:generate=true
// +groupName=ccm.outrigger.dev
package v1alpha1
