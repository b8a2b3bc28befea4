// SPDX-License-Identifier: Apache-2.0

//go:build openstack

package builtin

import _ "github.com/outrigger/outrigger/providers/openstack" // registers provider openstack
