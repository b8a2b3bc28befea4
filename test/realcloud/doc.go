// SPDX-License-Identifier: Apache-2.0

// Package realcloud runs providers against real control planes of clouds that
// fit on one machine, since a simulator of our own can share our mistakes.
//
// With OUTRIGGER_REAL_OPENSTACK=1, which is `make test-openstack`, that is
// OpenStack as Debian packages it: Keystone, Glance, Placement, Nova with its fake
// hypervisor driver and Neutron without agents, in namespaces of their own. It
// has no Cinder and no TLS.
package realcloud
