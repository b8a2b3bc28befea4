// SPDX-License-Identifier: Apache-2.0

// Package controller deploys the cloud controller manager that fits a cluster, and
// keeps it as it should be.
//
// On OpenShift the cluster says what it runs on: see openShift. Elsewhere a
// CloudControllerManager does: see ccmReconciler. Both make objects of a bundle and
// give them to the same [Deployer].
package controller
