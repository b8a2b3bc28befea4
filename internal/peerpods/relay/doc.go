// SPDX-License-Identifier: Apache-2.0

// Package relay carries the agent protocol from the shims of a node to the
// agents in their pod VMs. It lives in a process of its own, agent-relay: a
// shim takes a lost connection for the death of its pod, so what holds the
// connections must outlive an upgrade or a crash of cloud-api-adaptor.
//
// Each connection of a shim has one connection to the VM of its own, so calls
// pass as they are; see package ttrpcframe.
package relay
