// SPDX-License-Identifier: Apache-2.0

// Package docker is a Docker Engine for tests, on a unix socket: as much of its
// API as pod VMs need, without a single process. What a schedule of faults does
// in milliseconds here takes a real engine seconds; the package dockerd has
// that one.
//
// Requests are checked with the engine's own definition of the version of the
// API that they name (docs/v*.yaml of the module github.com/moby/moby/api):
// parameters and members of bodies that it does not know, wrong types and
// absent parameters are refused. What the simulator sends is checked with the
// same definition, see [Engine.Wrong].
//
// The name of a container is taken from the beginning of its creation to the
// end of its removal, as in the engine, which shows it for a shorter time. An
// image's volumes become anonymous ones, which only a removal that asks for it
// takes along.
//
// Actions in the script are the definition's operationIds, such as
// ContainerCreate. A call whose caller goes away is done to its end.
package docker
