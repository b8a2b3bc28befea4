// SPDX-License-Identifier: Apache-2.0

// Package claims is the one place for what nodes and controller must do alike
// to PeerPods: their names, finalizer, conditions, phases and patches.
//
// The node's adaptor uses [Claims]: Claim before it asks the cloud, Update as
// steps are done, Release when the instance is gone. The controller cleans up
// after nodes that never finish. This package does not link controller-runtime,
// so that the adaptor stays small.
package claims
