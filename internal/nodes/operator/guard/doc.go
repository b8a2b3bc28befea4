// SPDX-License-Identifier: Apache-2.0

// Package guard keeps a cloud controller manager with a wrong view of its cloud,
// because of a token with too few rights or another account's credentials, from
// deleting the Nodes of a cluster.
//
// A ValidatingAdmissionPolicy refuses every deletion of a Node by such a manager
// unless the Node has a ticket, an annotation. The guard gives tickets: to a Node
// that is of this cloud, is not new, and has not been Ready for a while, to few of
// them in a window of time, and to none while many Nodes are not Ready at once. A
// policy sees one object and no clock; hence the tickets. A person can give one too.
package guard
