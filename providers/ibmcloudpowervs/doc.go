// SPDX-License-Identifier: Apache-2.0

// Package ibmcloudpowervs makes pod VMs of IBM Power Virtual Server: logical
// partitions in one workspace (service instance).
//
// The API has no idempotency token, and instances may share a name. So an
// instance's name ends in a hash of its key, every creation looks for that hash
// first, and one process makes an instance of a key at a time; should two
// processes have made one each, the one with the smaller id stays. Owner tags
// are user tags, which the API takes at creation. They are kept in lower case
// only, and have 128 characters at most, so what does not fit is encoded.
package ibmcloudpowervs
