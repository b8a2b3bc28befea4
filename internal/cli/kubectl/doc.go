// SPDX-License-Identifier: Apache-2.0

// Package kubectl is the command line of kubectl-outrigger: what Outrigger does
// in a cluster, as its users and operators see it with a kubeconfig. It is the
// program outrigger under another name; kubectl finds it in PATH and runs it as
// `kubectl outrigger`. It changes nothing in the cluster.
package kubectl
