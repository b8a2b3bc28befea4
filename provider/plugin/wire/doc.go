// SPDX-License-Identifier: Apache-2.0

// Package wire carries package provider over gRPC: [NewServer] puts a provider
// behind the contract of package pluginpb, and [NewProvider] is a
// [provider.Provider] that calls one. Together they are invisible: what a
// caller sees, error classes and texts included, is what the provider said.
//
// # Errors
//
// An error crosses as a gRPC status whose message is the error's text and
// which has a google.rpc.ErrorInfo as detail: the domain is [ErrorDomain], the
// reason the class ("CAPACITY" for provider.ErrCapacity), and further classes,
// as with [errors.Join], are in the metadata under "also", with commas. A
// plugin that sends a plain status, as one in another language may, gets the
// class nearest to the code. Besides, the client's errors are
//
//   - the context's error when the context of the call has ended,
//   - provider.ErrUnavailable when the plugin is gone: what was asked for may
//     have been done,
//   - provider.ErrUnimplemented when the plugin is older than the call,
//   - [ErrNotConfigured] when the plugin does not have the configuration, as
//     after a restart.
//
// A panic of the provider is a provider.ErrUnknown with its text; its stack is
// in the plugin's log.
//
// # Cancelled creations
//
// Over gRPC a caller that gives up never hears how its CreateInstance, CreateDisk
// or CreateSnapshot ended. So that it can still find what was made, ListInstances,
// ListDisks and ListSnapshots wait until the creations that were given up before
// them have returned.
package wire

import "math"

// ContractVersion is the version of the contract that this package speaks.
const ContractVersion = 1

// ErrorDomain is the domain of the ErrorInfo of every error.
const ErrorDomain = "provider.outrigger"

// MaxMessage is the largest message in bytes that either side takes: a console
// or a long list exceed gRPC's 4 MiB.
const MaxMessage = 64 << 20

// maxErrorText is the longest text of an error that is sent: it travels in a
// header, and peers limit those.
const maxErrorText = math.MaxUint16
