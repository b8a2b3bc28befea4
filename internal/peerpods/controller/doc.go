// SPDX-License-Identifier: Apache-2.0

// Package controller makes the cloud agree with the PeerPods of the cluster.
//
// Three loops share one set of providers:
//
//   - reconcile looks at one PeerPod: it removes what one in deletion claims
//     and lets it go when the cloud shows nothing any more; it adopts the
//     instance of one whose node never noted it; it deletes PeerPods that lost
//     their node and pod or were replaced by a younger sandbox of the pod;
//   - sweep checks one provider's list: instances that no PeerPod claims, and
//     second instances of one sandbox, are removed after a grace period;
//   - settings watches the ConfigMap and the Secret.
//
// Every decision is made from the current state of API and cloud. State in
// memory only saves calls, so the controller can be killed at any time.
package controller
