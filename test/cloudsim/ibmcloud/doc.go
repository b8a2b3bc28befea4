// SPDX-License-Identifier: Apache-2.0

// Package ibmcloud is a simulated IBM Cloud: the part of the VPC API that makes
// instances, volumes and snapshots, and the token service.
//
// What a request may say comes from IBM's own SDK: bodies go through its
// unmarshallers and validators and must come out with every field they went in
// with; query parameters are those of the operation's options, and version and
// generation are required. States, error codes and limits come from IBM's
// reference, which is named where it is used.
package ibmcloud
