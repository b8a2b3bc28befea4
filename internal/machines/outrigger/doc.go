// SPDX-License-Identifier: Apache-2.0

// Package outrigger is what is behind the kinds OutriggerCluster and
// OutriggerMachine: any provider of package provider.
//
// A machine is an instance whose idempotency key is the machine's. Calls that
// make or remove one may take long and run in the background; nothing has to be
// remembered of them when the manager dies, since both can be repeated with the
// key. Whether machines still live is seen in one list for each cluster.
package outrigger
