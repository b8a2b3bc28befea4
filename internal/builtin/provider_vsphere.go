// SPDX-License-Identifier: Apache-2.0

//go:build vsphere

package builtin

import _ "github.com/outrigger/outrigger/providers/vsphere" // registers provider vsphere
