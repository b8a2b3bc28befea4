// SPDX-License-Identifier: Apache-2.0

// Package ccm is a cloud provider, in the sense of k8s.io/cloud-provider, over
// any provider of package provider that can list and look up instances.
//
// The controllers of k8s.io/cloud-provider delete a Node that is not Ready as
// soon as InstanceExists returns false once. This package returns false only
// with proof: see [Cloud.InstanceExists].
package ccm
