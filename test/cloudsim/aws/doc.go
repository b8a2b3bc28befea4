// SPDX-License-Identifier: Apache-2.0

// Package aws simulates Amazon EC2 and STS on loopback.
//
// Requests are held against Amazon's own definition of the API (api-2.json of
// aws-sdk-go v1): unknown parameters, wrong types, values that are in no enum
// and missing parameters are refused, and replies are written by the same
// definition, so that nothing here is shaped to one client. Signatures are
// verified by an implementation of SigV4 of our own.
//
// The state machine has what EC2's documentation says and a provider can trip
// over: client tokens that count in a zone and outlive the instance, reads
// that lag behind, states that take time, tags on each kind of resource, pages,
// dry runs, capacity and quotas. What the documentation leaves open is decided
// against the client.
package aws
