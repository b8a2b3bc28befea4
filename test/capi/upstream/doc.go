// SPDX-License-Identifier: Apache-2.0

// Package upstream runs Cluster API's own specifications, those of its module
// sigs.k8s.io/cluster-api/test, with our provider. `make test-capi-upstream` starts what
// they need: a management cluster in which clusterctl has installed a release, and the
// managers as processes. docs/capi-upstream.md has all of the specifications, each with its
// result or the reason why it is not run.
package upstream
