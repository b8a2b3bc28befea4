// SPDX-License-Identifier: Apache-2.0

// Package outrigger is the backend of the kinds OutriggerCluster and
// OutriggerMachine: any provider of package provider.
//
// A machine is an instance whose idempotency key is the machine's. Calls that
// make or remove one may take long and run in the background; they need no
// persistent state, since both can be repeated with the key. One list for each
// cluster shows whether its machines still exist.
package outrigger
