// SPDX-License-Identifier: Apache-2.0

// Package watchdog reports why a Node is not initialized by its cloud controller
// manager. Such managers report no failures themselves, so that a Node can stay
// tainted for a day and nobody knows why. The watchdog inspects the cluster (the
// Node, the manager's pods, its lease, Events) and names the cause, in a condition
// and an Event of the Node and in a metric. It works with any cloud controller
// manager.
package watchdog
