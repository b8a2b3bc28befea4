// SPDX-License-Identifier: Apache-2.0

// Package provider is the contract between Outrigger and a cloud.
//
// A provider author implements two interfaces: [CloudProvider], which reads
// configuration, and [Provider], which makes and removes instances. Everything
// else is an optional capability, found by type assertion: [Lister], [Getter],
// [ConsoleReader], [PowerController], [InstanceTypeLister], [NodeAddresser],
// [LoadBalancerController], [DiskController], [DiskSnapshotter], and for calls that have no context [ContextOpener],
// [ContextVerifier] and [ContextCloser]. The words MUST, SHOULD and MAY are used as in
// RFC 2119.
// Package provider/conformance proves an implementation against these words.
//
// Errors carry a class: wrap one of the Err variables with %w and callers test
// it with [errors.Is]. An error without a class is treated as [ErrUnknown].
package provider
