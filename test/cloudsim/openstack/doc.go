// SPDX-License-Identifier: Apache-2.0

// Package openstack is an OpenStack for tests: Keystone v3, Nova, Neutron,
// Glance and Cinder, as far as pod VMs need them, over HTTPS on loopback.
//
// It refuses what OpenStack refuses: requests without a valid token, members of
// a body and parameters of a query that the API does not know, wrong types,
// absent required members, values that are too long, and references to what is
// not there. Servers pass through their tasks in the time of a few requests.
// Rows of errors name where they are documented.
//
// Actions in the script are the names of the policies of OpenStack's services,
// such as os_compute_api:servers:create or create_port; logging in is
// identity:create_token. A refused creation of a server whose code begins with
// "late:" is accepted, and the server ends in status ERROR.
package openstack
