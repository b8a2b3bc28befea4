// SPDX-License-Identifier: Apache-2.0

//go:build openstack

package main

import _ "github.com/outrigger/outrigger/providers/openstack" // registers provider openstack
