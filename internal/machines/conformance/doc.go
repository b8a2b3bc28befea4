// SPDX-License-Identifier: Apache-2.0

// Package conformance proves, from outside, that an infrastructure provider
// of Cluster API keeps the contract v1beta2. It needs an API server where the
// definitions of Cluster API's core and of the provider are installed and the
// provider's manager works, and one object of each of its kinds.
//
// Core itself may work there or not. Where it does not the kit plays its part:
// it owns infrastructure, copies what core copies, and deletes in core's order.
// Bootstrap data is the kit's own in both cases.
//
// Every check is a named sentence of the contract with namespaces of its own.
// What exists outside is seen only through [Subject.Inventory], and restarts
// need [Subject.Restart]; checks that need what is not given are skipped.
package conformance
