// SPDX-License-Identifier: Apache-2.0

// Package configsync prepares on OpenShift what a cloud controller manager
// mounts: the configuration of its cloud and the authorities that it trusts.
// Each has a controller. Both say how they are in the operator's
// ClusterOperator, and the operator deploys nothing before both work.
package configsync
