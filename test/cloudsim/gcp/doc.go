// SPDX-License-Identifier: Apache-2.0

// Package gcp is a simulated Google Compute Engine: the REST API below
// /compute/v1, tokens for service accounts and external accounts, and the one
// call of the Resource Manager that tells permissions.
//
// Every request is checked against Google's own definition of the API (the
// discovery document in a module, see [Module]): path, parameters, types,
// enumerations, patterns, required fields, and the fields that a partial answer
// asks for. What the definition does not say comes from Google's pages, which
// are named where they are used.
package gcp
