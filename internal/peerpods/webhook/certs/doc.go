// SPDX-License-Identifier: Apache-2.0

// Package certs keeps the webhook's serving certificate and what the API
// server trusts of it, without a certificate manager: all replicas share one
// Secret, and the certificate authority's certificate is written into the
// MutatingWebhookConfiguration.
//
// A certificate is renewed in two steps, so that no call fails: first the next
// authority is published beside the current one; only when the API server has
// it does the next certificate take the place of the current. An authority's
// key is dropped once it has signed its one certificate.
package certs
