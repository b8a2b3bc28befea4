// SPDX-License-Identifier: Apache-2.0

// Package cluster is the adaptor's part in a Kubernetes cluster: it claims
// instances with PeerPods, reports what happens to a Pod's VM in Events,
// advertises how many VMs the node may have, and fetches what a pod's VM needs
// to pull images.
//
// Pods start and stop without the API server. What could not be written is
// written later, from the journal: the record of a sandbox stays until its
// PeerPod is released.
//
// It uses plain HTTP requests for the few fields it needs. Kubernetes' Go types
// of pods, secrets and nodes would add 7 MB to a daemon that runs on every
// node.
package cluster
