// SPDX-License-Identifier: Apache-2.0

// Package ccm is a cloud provider, in the sense of k8s.io/cloud-provider, over
// any provider of package provider that can list and look up instances.
//
// The controllers of k8s.io/cloud-provider delete a Node that is not Ready as
// soon as they are told once that its instance does not exist. This package
// tells them so only with proof: see [Cloud.InstanceExists].
package ccm
