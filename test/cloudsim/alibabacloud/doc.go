// SPDX-License-Identifier: Apache-2.0

// Package alibabacloud is a simulated Alibaba Cloud: the parts of ECS
// (2014-05-26), VPC (2016-04-28) and STS (2015-04-01) that make, show and
// remove instances, and of CLB (slb, 2014-05-15) for load balancers, over HTTPS
// on loopback.
//
// A request is looked at in the order of the real one: its signature
// (ACS3-HMAC-SHA256, by an implementation of our own), whether the keys are
// known and valid now, whether the account may call the action, whether every
// parameter is one that the API defines and has its type, whether those that
// are required are there, and only then what it asks for. What the API defines
// is read from the request models of Alibaba's own modules for Go. A parameter
// that the API has and this package does not know what to do with is refused
// as NotSimulated, rather than overlooked.
//
// Codes and HTTP statuses of errors are in a table, each with where it is from.
package alibabacloud
