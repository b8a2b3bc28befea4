// SPDX-License-Identifier: Apache-2.0

// Package claims is the one place for what nodes and controller must do alike
// to PeerPods: their names, finalizer, conditions, phases and patches.
//
// The node's adaptor uses [Claims]: Claim before it asks the cloud, Update as
// steps are done, Release when the instance is gone. The controller, in the
// packages below this one, cleans up after nodes that never come to the end of
// that. This package links no controller machinery, so that the adaptor stays
// small.
package claims
