// SPDX-License-Identifier: Apache-2.0

// Package openstack runs pod VMs as servers of an OpenStack cloud: Nova for the
// servers, Neutron for their addresses.
//
// Nova has no idempotency tokens and takes any name any number of times, but a
// network of Neutron has each MAC address once. So an instance begins with a
// port whose MAC address is derived from the sandbox id: of two processes that
// make one sandbox one gets the port, and a server needs a port that its maker
// has made. The port is made first and deleted last. It carries the owner tags,
// so whatever a crash leaves is listed, and can be deleted, by it.
//
// A port without a server is either being made into an instance now or the rest
// of a crash. Who finds one waits a while, deletes it, which makes the server
// call of a maker that is only slow fail, looks for a server again, and begins
// again.
package openstack
